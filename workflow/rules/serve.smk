# Life of a server: started by a supervisor, warmed up, ended after its trials. `together` connects the deployments
# that a site runs in one job.


rule together:
    output:
        temp(f"{DEPLOYMENT}/together"),
    log:
        f"{SCENARIO}/logs/together/{{deployment}}.log",
    group:
        dag.group
    threads: 1
    resources:
        **dag.resources("together"),
    shell:
        "touch {output:q} > {log:q} 2>&1"


rule serve:
    input:
        together=dag.together,
        before=lambda w: [ancient(record) for record in dag.waits_for(w)],
        plan=ancient(f"{SCENARIO}/plan.json"),
        environment=lambda w: [ancient(record) for record in dag.environment_for(w)],
    output:
        temp(f"{DEPLOYMENT}/endpoint.json"),
    log:
        f"{SCENARIO}/logs/serve/{{deployment}}.log",
    priority: dag.priority("serve")
    group:
        dag.group
    threads: dag.cpus
    resources:
        **dag.resources("serve"),
    shell:
        dag.script("serve", "{wildcards.scenario:q}", "{wildcards.deployment:q}")


rule warmup:
    input:
        rules.serve.output,
    output:
        temp(f"{DEPLOYMENT}/warmup.json"),
    log:
        f"{SCENARIO}/logs/warmup/{{deployment}}.log",
    priority: dag.priority("warmup")
    group:
        dag.group
    container:
        dag.image
    threads: dag.cpus
    resources:
        **dag.resources("warmup"),
    shell:
        dag.load_script("warmup", "{wildcards.scenario:q}", "{wildcards.deployment:q}")


rule teardown:
    input:
        endpoint=lambda w: [ancient(path) for path in dag.endpoint_for_teardown(w)],
        loads=dag.loads,
    output:
        f"{DEPLOYMENT}/deployment.json",
    log:
        f"{SCENARIO}/logs/teardown/{{deployment}}.log",
    priority: dag.priority("teardown")
    group:
        dag.group
    threads: dag.cpus
    resources:
        **dag.resources("teardown"),
    shell:
        dag.script(
            "teardown",
            "{wildcards.scenario:q}",
            "{wildcards.deployment:q}",
            *dag.lanes.arguments,
        )

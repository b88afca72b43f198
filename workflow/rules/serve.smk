# A server's life: started with a keeper, shown to work, ended when its trials are done.


rule serve:
    input:
        plan=ancient(f"{SCENARIO}/plan.json"),
        environment=lambda w: [ancient(record) for record in dag.environment_for(w)],
    output:
        temp(f"{DEPLOYMENT}/endpoint.json"),
    group:
        "dep_{scenario}_{deployment}"
    priority: dag.priority("serve")
    threads: dag.cpus
    resources:
        slot=100,
        mem_mb=dag.mem_mb,
        runtime=dag.runtime_min("serve"),
        **dag.site_resources(),
    shell:
        dag.script("serve", "{wildcards.scenario}", "{wildcards.deployment}")


rule warmup:
    input:
        rules.serve.output,
    output:
        temp(f"{DEPLOYMENT}/warmup.json"),
    group:
        "dep_{scenario}_{deployment}"
    priority: dag.priority("warmup")
    threads: dag.cpus
    resources:
        slot=100,
        mem_mb=dag.mem_mb,
        runtime=dag.runtime_min("warmup"),
        **dag.site_resources(),
    shell:
        dag.script("warmup", "{wildcards.scenario}", "{wildcards.deployment}")


rule teardown:
    input:
        endpoint=lambda w: [ancient(path) for path in dag.endpoint_for_teardown(w)],
        loads=dag.loads,
    output:
        f"{DEPLOYMENT}/deployment.json",
    group:
        "dep_{scenario}_{deployment}"
    priority: dag.priority("teardown")
    threads: dag.cpus
    resources:
        slot=100,
        mem_mb=dag.mem_mb,
        runtime=dag.runtime_min("teardown"),
        **dag.site_resources(),
    shell:
        dag.script("teardown", "{wildcards.scenario}", "{wildcards.deployment}")

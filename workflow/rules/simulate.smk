# One simulation: a program on a virtual clock. It has no server and no group, and many run side by side, but none beside
# a load.


rule simulate:
    input:
        plan=ancient(f"{SCENARIO}/plan.json"),
        lanes=dag.lanes_before,
        environment=lambda w: [ancient(record) for record in dag.environment_for(w)],
    output:
        f"{TRIAL}/load.json",
    log:
        f"{SCENARIO}/logs/simulate/{{deployment}}--{{workload}}--r{{repetition}}.log",
    wildcard_constraints:
        deployment=dag.simulated,
    priority: dag.priority("simulate")
    threads: 1
    resources:
        **dag.resources("simulate"),
    params:
        changed=dag.changed,
    shell:
        dag.script(
            "simulate",
            "{wildcards.scenario:q}",
            TRIAL_ID,
            "{params.changed[config_hash]}",
        )

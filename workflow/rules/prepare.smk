# Outputs outside of all trials, created once: the plan, and the environment of each service.


rule plan:
    output:
        f"{SCENARIO}/plan.json",
    log:
        f"{SCENARIO}/logs/plan.log",
    localrule: True
    shell:
        dag.script("plan", "{wildcards.scenario:q}")


rule environment:
    output:
        dag.environment_record("{environment}"),
    log:
        f"{dag.environment_record('{environment}')}.log",
    priority: 1_000_000_000
    localrule: True
    resources:
        slot=dag.analysis_slot,
    shell:
        dag.script("environment", "{wildcards.environment:q}", "{output:q}")

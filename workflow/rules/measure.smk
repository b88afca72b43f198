# One trial: load, scores of kept replies, telemetry, metrics. A trial with complete samples needs no server.


rule load:
    input:
        plan=ancient(f"{SCENARIO}/plan.json"),
        server=dag.server_for_trial,
    output:
        f"{TRIAL}/load.json",
    log:
        f"{SCENARIO}/logs/load/{{deployment}}--{{workload}}--r{{repetition}}.log",
    wildcard_constraints:
        deployment=dag.measured,
    priority: dag.priority("load")
    group:
        dag.group
    container:
        dag.image
    threads: dag.cpus
    resources:
        **dag.resources("load"),
    params:
        changed=dag.changed,
    shell:
        dag.load_script(
            "load",
            "{wildcards.scenario:q}",
            TRIAL_ID,
            "{params.changed[config_hash]}",
            *dag.lanes.arguments,
        )


rule judge:
    input:
        f"{TRIAL}/load.json",
    output:
        f"{TRIAL}/answers.json",
    log:
        f"{SCENARIO}/logs/judge/{{deployment}}--{{workload}}--r{{repetition}}.log",
    localrule: True
    resources:
        slot=dag.analysis_slot,
    params:
        version=dag.quality_version,
    shell:
        dag.script("judge", "{wildcards.scenario:q}", TRIAL_ID)


rule monitor:
    input:
        f"{TRIAL}/load.json",
    output:
        parquet=f"{TRIAL}/telemetry.parquet",
        csv=f"{TRIAL}/telemetry.csv",
    log:
        f"{SCENARIO}/logs/monitor/{{deployment}}--{{workload}}--r{{repetition}}.log",
    localrule: True
    resources:
        slot=dag.analysis_slot,
    shell:
        dag.derive("monitor", "{input:q}")


rule metrics:
    input:
        plan=ancient(f"{SCENARIO}/plan.json"),
        load=f"{TRIAL}/load.json",
        telemetry=f"{TRIAL}/telemetry.parquet",
        answers=dag.answers,
    output:
        json=f"{TRIAL}/metrics.json",
        csv=f"{TRIAL}/metrics.csv",
        series=f"{TRIAL}/series.csv",
        histogram=f"{TRIAL}/histogram.json",
    log:
        f"{SCENARIO}/logs/metrics/{{deployment}}--{{workload}}--r{{repetition}}.log",
    localrule: True
    resources:
        slot=dag.analysis_slot,
    params:
        objectives=dag.objectives,
    shell:
        dag.derive("metrics", "{input.plan:q}", "{input.load:q}", *dag.exposition)

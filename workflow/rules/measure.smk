# One trial: load, what was watched meanwhile, its metrics. A trial whose samples are complete needs no server.


rule load:
    input:
        plan=ancient(f"{SCENARIO}/plan.json"),
        server=dag.server_for_trial,
    output:
        f"{TRIAL}/load.json",
    group:
        "dep_{scenario}_{deployment}"
    priority: dag.priority("load")
    threads: dag.cpus
    resources:
        slot=100,
        mem_mb=dag.mem_mb,
        runtime=dag.runtime_min("load"),
        **dag.site_resources(),
    params:
        changed=dag.changed,
    shell:
        dag.script("load", "{wildcards.scenario}", TRIAL_ID)


rule monitor:
    input:
        f"{TRIAL}/load.json",
    output:
        parquet=f"{TRIAL}/telemetry.parquet",
        csv=f"{TRIAL}/telemetry.csv",
    resources:
        slot=dag.analysis_slot,
    shell:
        dag.script("monitor", "{wildcards.scenario}", TRIAL_ID)


rule metrics:
    input:
        plan=ancient(f"{SCENARIO}/plan.json"),
        load=f"{TRIAL}/load.json",
        telemetry=f"{TRIAL}/telemetry.parquet",
    output:
        json=f"{TRIAL}/metrics.json",
        csv=f"{TRIAL}/metrics.csv",
        series=f"{TRIAL}/series.csv",
        histogram=f"{TRIAL}/histogram.json",
    resources:
        slot=dag.analysis_slot,
    shell:
        dag.script("metrics", "{wildcards.scenario}", TRIAL_ID)

# Lanes of a run with `parallel` above 1: each runs deployments one after another on devices, `load` and `teardown` then
# only publish their records. Snakemake starts a lane that was killed again; its unit is then run again, by any lane.


rule lane:
    input:
        plan=ancient(f"{SCENARIO}/plan.json"),
        environments=lambda w: [ancient(record) for record in dag.environments(w)],
    output:
        temp(f"{SCENARIO}/.lanes/{{run}}/lane-{{lane}}.json"),
    log:
        f"{SCENARIO}/logs/lane/{{run}}-{{lane}}.log",
    priority: 999_999_999
    retries: 2
    threads: 1
    resources:
        slot=dag.lanes.slot(dag.slots),
    shell:
        dag.script(
            "lane",
            "{wildcards.scenario:q}",
            "{wildcards.run:q}",
            "{wildcards.lane:q}",
            *dag.lane_options,
        )

# Outputs of a whole scenario: the summary of its trials, and the pages of its report.


rule summary:
    input:
        plan=f"{SCENARIO}/plan.json",
        metrics=lambda w: dag.metrics(w.scenario),
    output:
        json=f"{SCENARIO}/summary.json",
        csv=report(
            f"{SCENARIO}/summary.csv",
            caption=dag.file("workflow/report/summary.rst"),
            category="{scenario}",
            subcategory="Tables",
        ),
        parquet=f"{SCENARIO}/summary.parquet",
    log:
        f"{SCENARIO}/logs/summary.log",
    localrule: True
    resources:
        slot=dag.analysis_slot,
    shell:
        dag.script("summary", "{wildcards.scenario:q}")


rule report:
    input:
        summary=f"{SCENARIO}/summary.json",
        deployments=lambda w: dag.records(w.scenario),
    output:
        html=f"{dag.reports}/{{scenario}}/index.html",
        markdown=f"{dag.reports}/{{scenario}}/report.md",
        figures=report(
            directory(f"{dag.reports}/{{scenario}}/figures"),
            patterns=["{name}.png"],
            caption=dag.file("workflow/report/figures.rst"),
            category="{scenario}",
            subcategory="Figures",
            labels={"figure": "{name}"},
        ),
    log:
        f"{SCENARIO}/logs/report.log",
    localrule: True
    resources:
        slot=dag.analysis_slot,
    shell:
        dag.script("report", "{wildcards.scenario:q}")

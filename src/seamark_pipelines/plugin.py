"""What pipelines add to `bench`."""

from seamark.model.plugin import Plugin, Verb

PLUGIN = Plugin(
    name="pipelines",
    verbs={
        "colocate": Verb(
            summary="Measure the pipelines of a file, side by side.",
            command="seamark_pipelines.cli.colocate:command",
        ),
        "whatif": Verb(
            summary="Tell what a faster stage of a pipeline would bring.",
            command="seamark_pipelines.cli.whatif:command",
            derives_figures=True,
        ),
    },
    exports={"colocation": "seamark_pipelines.cli.export:command"},
    study="seamark_pipelines/study",
)

"""What Kubernetes adds to `bench`."""

from seamark.model.plugin import Plugin, Verb

PLUGIN = Plugin(
    name="kubernetes",
    exports={"tekton": "seamark_kubernetes.cli.export:command", "llmd": "seamark_kubernetes.cli.export:llmd"},
    verbs={
        "tekton": Verb(summary="Set the order of a Tekton matrix.", command="seamark_kubernetes.cli.tekton:command"),
        "import": Verb(summary="Make a scenario of an experiment.", command="seamark_kubernetes.cli.imports:command"),
    },
)

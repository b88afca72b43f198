"""A strict schema of the objects of Tekton and Kubernetes that we write, from the API reference of tekton.dev/v1 and
v1beta1, rbac.authorization.k8s.io/v1 and core v1: a field that is not there is refused, as the API server does."""

from typing import Any

TEXT = {"type": "string"}
NAME = {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"}
ON_ERROR = {"enum": ["continue", "stopAndFail"]}


def texts(**more: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": TEXT, **more}


def listed(item: Any) -> dict[str, Any]:
    return {"type": "array", "items": item}


def fields(*required: str, **known: Any) -> dict[str, Any]:
    """An object of these fields and no other."""
    return {"type": "object", "properties": known, "required": list(required), "additionalProperties": False}


METADATA = fields("name", name=NAME, namespace=TEXT, labels=texts(), annotations=texts())
VALUE = {"anyOf": [TEXT, listed(TEXT)]}
PARAM_NAME = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_.-]*$"}
PARAMS = listed(fields("name", "value", name=PARAM_NAME, value=VALUE))
DECLARED = listed(
    fields("name", name=PARAM_NAME, type={"enum": ["string", "array", "object"]}, default=VALUE, description=TEXT)
)
SECRET = fields("key", name=TEXT, key=TEXT, optional={"type": "boolean"})
ENV = listed(fields("name", name=TEXT, value=TEXT, valueFrom=fields(secretKeyRef=SECRET)))
MOUNTS = listed(fields("name", "mountPath", name=TEXT, mountPath=TEXT, readOnly={"type": "boolean"}))
QUANTITIES = texts(patternProperties={".*": {"pattern": r"^[0-9.]+([EPTGMk]i?|m)?$"}})
CONTAINER = {
    "image": TEXT,
    "command": listed(TEXT),
    "args": listed(TEXT),
    "script": TEXT,
    "workingDir": TEXT,
    "env": ENV,
    "volumeMounts": MOUNTS,
}
COMPUTE = fields(requests=QUANTITIES, limits=QUANTITIES)
STEP = fields(
    "name", name=NAME, ref=fields("name", name=TEXT), params=PARAMS, onError=ON_ERROR, timeout=TEXT,
    computeResources=COMPUTE, **CONTAINER,
)  # fmt: skip
TASK_SPEC = fields(
    "steps",
    description=TEXT,
    params=DECLARED,
    workspaces=listed(fields("name", name=TEXT, description=TEXT, mountPath=TEXT)),
    volumes=listed(
        fields("name", name=NAME, emptyDir=fields(), persistentVolumeClaim=fields("claimName", claimName=TEXT))
    ),
    sidecars=listed(fields("name", name=NAME, computeResources=COMPUTE, **CONTAINER)),
    steps={"type": "array", "minItems": 1, "items": STEP},
)
STEP_ACTION = fields("image", description=TEXT, params=DECLARED, **CONTAINER)
PIPELINE_TASK = fields(
    "name",
    "taskRef",
    name=NAME,
    displayName=TEXT,
    runAfter=listed(NAME),
    timeout=TEXT,
    taskRef=fields("name", name=NAME),
    onError=ON_ERROR,
    params=PARAMS,
    matrix=fields(
        params=listed(fields("name", "value", name=PARAM_NAME, value=listed(TEXT))),
        include=listed(fields("params", name=TEXT, params=PARAMS)),
    ),
    workspaces=listed(fields("name", "workspace", name=TEXT, workspace=TEXT)),
)
PIPELINE_RUN = fields(
    "pipelineSpec",
    timeouts=fields(pipeline=TEXT, tasks=TEXT),
    taskRunTemplate=fields(serviceAccountName=TEXT),
    workspaces=listed(fields("name", name=TEXT, persistentVolumeClaim=fields("claimName", claimName=TEXT))),
    params=PARAMS,
    taskRunSpecs=listed(
        fields("pipelineTaskName", pipelineTaskName=NAME, metadata=fields(annotations=texts(), labels=texts()))
    ),
    pipelineSpec=fields(
        "tasks",
        params=DECLARED,
        workspaces=listed(fields("name", name=TEXT)),
        tasks={"type": "array", "minItems": 1, "items": PIPELINE_TASK},
        **{"finally": listed(PIPELINE_TASK)},
    ),
)
CLAIM = fields(
    accessModes=listed({"enum": ["ReadWriteMany", "ReadWriteOnce"]}),
    volumeMode={"const": "Filesystem"},
    storageClassName=TEXT,
    resources=fields(requests=QUANTITIES),
)
KINDS: dict[tuple[str, str], dict[str, Any]] = {
    ("tekton.dev/v1", "PipelineRun"): {"spec": PIPELINE_RUN},
    ("tekton.dev/v1", "Task"): {"spec": TASK_SPEC},
    ("tekton.dev/v1beta1", "StepAction"): {"spec": STEP_ACTION},
    ("v1", "ServiceAccount"): {},
    ("v1", "PersistentVolumeClaim"): {"spec": CLAIM},
    ("rbac.authorization.k8s.io/v1", "Role"): {
        "rules": listed(fields(apiGroups=listed(TEXT), resources=listed(TEXT), verbs=listed(TEXT)))
    },
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): {
        "subjects": listed(fields("kind", "name", kind=TEXT, name=TEXT, namespace=TEXT)),
        "roleRef": fields("apiGroup", "kind", "name", apiGroup=TEXT, kind=TEXT, name=TEXT),
    },
}


def schema_of(document: Any) -> dict[str, Any]:
    """Return the schema of a document; KeyError for an object that we do not write."""
    own = KINDS[document["apiVersion"], document["kind"]]
    return fields("apiVersion", "kind", "metadata", *own, apiVersion=TEXT, kind=TEXT, metadata=METADATA, **own)

"""The Milvus server of the PyPI distribution `milvus`, unpacked so that it can be started without its Python wrapper.

The wrapper sends health probes to whatever listens on port 9091, and has a fixed port for the etcd inside it. Started
directly, the server takes every port and path from its environment.
"""

from pathlib import Path

import milvus


def unpack(folder: Path) -> None:
    """Write the server with its libraries into `folder`/bin and its configuration into `folder`/configs: 250 MB."""
    config = milvus.MilvusServerConfig(data_dir=str(folder))
    config.resolve_storage()
    config.write_config()
    milvus._initialize_data_files(str(folder))


def main(argv: list[str]) -> int:
    """Unpack into the folder that is named. Called through isolated_main.py in the service's environment."""
    unpack(Path(argv[0]))
    return 0

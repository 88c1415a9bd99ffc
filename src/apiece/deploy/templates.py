"""The texts of the files that `apiece deploy init` writes for other programs: units, containers, a proxy, an app."""

APP = """\
[project]
name = "apiece-run"
version = "1.0.0"
description = "A run of apiece; its code is the installed package."
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "apiece"

[tool.flwr.app.components]
serverapp = "apiece_run.server_app:app"
clientapp = "apiece_run.client_app:app"

[tool.flwr.app.config]
folder = {folder}
"""

SERVER_APP = '''\
"""The server of a run: all of it is in the installed package."""

from pathlib import Path

from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    from apiece.deploy.flower_app import serve

    serve(grid, Path(str(context.run_config["folder"])))
'''

CLIENT_APP = '''\
"""A site of a run under a stock SuperNode, started with --node-config 'site="/path/of/the/site"'."""

from pathlib import Path

from flwr.clientapp import ClientApp

app = ClientApp()


@app.query("apiece")
def answer(message, context):
    from apiece.deploy.flower_app import answer

    return answer(message, Path(str(context.node_config["site"])))
'''

UNIT = """\
# For this folder at {folder}, and a user called apiece who owns it. Copy to
# /etc/systemd/system/apiece-{name}.service, then: systemctl enable --now apiece-{name}
[Unit]
Description=apiece, {what}
After=network-online.target
Wants=network-online.target

[Service]
WorkingDirectory={folder}
ExecStart={program} deploy {command} {folder}
Restart=on-failure
RestartSec=15
RestartPreventExitStatus=2
User=apiece
UMask=0077
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
ReadWritePaths={folder}
PrivateTmp=yes

[Install]
WantedBy=multi-user.target
"""

START = """\
#!/bin/sh
# What the unit runs, by hand.
exec apiece deploy {command} "$(dirname "$0")"
"""

PROXY = """\
# nginx before the server: sites reach the fleet paths and nothing else. The control and runtime paths of SuperLink have
# no authentication of their own; they stay on {address}, which no site can reach.
server {{
    listen 443 ssl;
    server_name {name};
    ssl_certificate     {folder}/server.crt;
    ssl_certificate_key {folder}/server.key;
    ssl_protocols TLSv1.2 TLSv1.3;
    client_max_body_size 8m;   # a piece of a letter has 5 MiB; more is no letter
    proxy_read_timeout 120s;

    location /v1/fleet/ {{
        proxy_pass https://{address};
        proxy_ssl_trusted_certificate {ca};
        proxy_ssl_verify on;
        proxy_ssl_name localhost;   # a name that is in every certificate of the server
    }}
    location / {{ return 403; }}
}}
"""

COMPOSE = """\
# All of it on one machine, to try it: docker compose up --build
services:
{services}"""

SERVICE = """\
  {name}:
    image: apiece:{version}
    build: ./image
    command: apiece deploy {command} /apiece/{path}
    volumes: {volumes}
    network_mode: host   # addresses are those of site.toml and server.toml
    restart: on-failure:5
"""

IMAGE = """\
FROM python:3.12-slim
RUN pip install --no-cache-dir 'apiece[flower]=={version}'
"""

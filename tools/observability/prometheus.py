"""A real Prometheus with the rules of deploy/prometheus, whose durations are shortened so that a run takes minutes."""

import http.server
import json
import pathlib
import re
import shutil
import threading
import urllib.error
import urllib.parse
import urllib.request

import yaml
from processes import Process, free_port

# A window or `for:` of the rules, and what it is here. A second's scrapes instead of fifteen, and nothing else, is changed besides.
WINDOWS = {"5m": "10s", "10m": "20s", "15m": "30s", "30m": "30s", "1h": "40s", "6h": "60s", "3d": "60s"}
WAITS = {"1m": "2s", "2m": "2s", "5m": "5s", "10m": "8s", "15m": "10s", "1h": "10s"}
# The objective of the latency: no scan of this run is meant to take 30 s.
FAST_SECONDS = "1"


def shortened(source: pathlib.Path, target: pathlib.Path):
    """Copies rules with every window and `for:` replaced; one that has no replacement is an error."""
    rules = yaml.safe_load(source.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["expr"] = re.sub(r"\[(\w+)\]", lambda found: f"[{WINDOWS[found[1]]}]", rule["expr"])
            rule["expr"] = rule["expr"].replace('le=~"30|30.0"', f'le=~"{FAST_SECONDS}|{FAST_SECONDS}.0"')
            if "for" in rule:
                rule["for"] = WAITS[rule["for"]]
    target.write_text(yaml.safe_dump(rules, sort_keys=False))


class Exporter(threading.Thread):
    """Takes the place of NVIDIA's dcgm-exporter: its names and labels, with figures that are made up, for the devices that it is given."""

    FIGURES = {"DCGM_FI_DEV_GPU_UTIL": 50, "DCGM_FI_DEV_FB_USED": 1000, "DCGM_FI_DEV_GPU_TEMP": 40, "DCGM_FI_DEV_POWER_USAGE": 100}

    def __init__(self):
        super().__init__(daemon=True)
        self.port, self.devices = free_port(), set()

    def page(self):
        label = lambda at, uuid: f'{{gpu="{at}",UUID="{uuid}",device="nvidia{at}",modelName="simulated",Hostname="loopback"}}'
        devices = list(enumerate(sorted(self.devices)))
        return "".join(f"{name}{label(at, uuid)} {value}\n" for name, value in self.FIGURES.items() for at, uuid in devices)

    def run(self):
        exporter = self

        class Page(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(exporter.page().encode())

            def log_message(self, *_):
                pass

        http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Page).serve_forever()


class Prometheus(Process):
    def __init__(self, program, folder, root, clusters):
        folder.mkdir(parents=True)
        self.exporter = Exporter()
        self.exporter.start()
        for name in ("recording", "alerts"):
            shortened(root / f"deploy/prometheus/{name}.yaml", folder / f"{name}.yaml")
        jobs = [
            {
                "job_name": f"trawl-{role}",
                "static_configs": [
                    {
                        "targets": [f"127.0.0.1:{port}" for port in cluster.ports[role]],
                        "labels": {"namespace": "loopback", "cluster": cluster.name},
                    }
                    for cluster in clusters
                ],
            }
            for role in ("coordinator", "worker")
        ]
        jobs.append({"job_name": "dcgm", "static_configs": [{"targets": [f"127.0.0.1:{self.exporter.port}"]}]})
        short = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        config = {"global": short, "rule_files": ["recording.yaml", "alerts.yaml"], "scrape_configs": jobs}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{address}/api/v1"
        command = [program, "--config.file", folder / "prometheus.yml", "--web.listen-address", address]
        command += ["--storage.tsdb.path", folder / "data", "--enable-feature=exemplar-storage"]
        super().__init__("prometheus", folder / "prometheus.log", command, {})

    def ask(self, path, **parameters):
        query = urllib.parse.urlencode(parameters, doseq=True)
        try:
            with urllib.request.urlopen(f"{self.url}/{path}?{query}", timeout=20) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as refused:
            # While it reads its own data it answers everything with 503 and no JSON.
            if refused.code == 503:
                raise
            raise ValueError(json.load(refused)["error"]) from None

    def ready(self):
        try:
            return bool(self.ask("targets"))
        except OSError:
            return False

    def value(self, expression):
        """The sum of what an expression has now; 0 where it has nothing."""
        return sum(float(sample["value"][1]) for sample in self.ask("query", query=expression)["result"])

    def firing(self):
        """{(alert, cluster)} that fire."""
        alerts = self.ask("alerts")["alerts"]
        return {(a["labels"]["alertname"], a["labels"].get("cluster", "")) for a in alerts if a["state"] == "firing"}


# What Grafana puts in place of its variables.
VARIABLES = {"$__rate_interval": "10s", "$namespace": ".*", "$cluster": ".*", "$instance": ".*"}
# Queries that have nothing in a run of some faults alone, by a part of their text, and why.
WITHOUT_DATA = {
    "trawl:device_": "no worker had a device in this run",
    "trawl_device_info": "no worker had a device in this run",
}


def queries(root):
    """Every query of every dashboard: (dashboard, panel, query, and the label whose values it lists, or None)."""
    for path in sorted((root / "deploy/grafana").glob("*.json")):
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            yield from ((path.stem, panel["title"], target["expr"], None) for target in panel.get("targets", []) if "expr" in target)
        for annotation in board["annotations"]["list"]:
            yield path.stem, "(annotation)", annotation["expr"], None
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                query, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
                yield path.stem, f"(variable {variable['name']})", query, label


def dashboards(prometheus, root, begin, end):
    """Asks every query of every dashboard over the whole run: [(dashboard, panel, query, series or what went wrong)]."""
    rows = []
    for board, panel, query, label in queries(root):
        asked = query
        for name, value in VARIABLES.items():
            asked = asked.replace(name, value)
        try:
            if label:
                found = len(prometheus.ask(f"label/{label}/values", **{"match[]": asked, "start": begin, "end": end}))
            else:
                found = len(prometheus.ask("query_range", query=asked, start=begin, end=end, step=2)["result"])
        except ValueError as error:
            found = str(error)
        rows.append((board, panel, query, found))
    return rows


def tidy(folder):
    shutil.rmtree(folder, ignore_errors=True)

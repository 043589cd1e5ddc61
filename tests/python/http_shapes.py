"""Replies of a server that speaks HTTP, to requests that succeed, against the description that it serves: random requests seldom do.

    http_shapes.py URL [TOKEN]
"""

import json
import sys
import urllib.request

from jsonschema_rs import validator_for

url, token = sys.argv[1], sys.argv[2:]
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(method, path, body=None):
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    headers.update({"Authorization": f"Bearer {token[0]}"} if token else {})
    data = None if body is None else json.dumps(body).encode()
    with opener.open(urllib.request.Request(url + path, data, headers, method=method), timeout=60) as reply:
        return json.load(reply)


description = ask("GET", "/openapi.json")
scan = {"dataset": "us5", "where": "close > sma(20) and rsi(14) > 40", "select": ["close", "rsi(14) as r", "close > sma(50) as up"], "rank": "close"}
sweep = {**scan, "where": "close > sma(n)", "sweep": {"n": {"from": 5, "to": 15, "step": 5}}, "best": {"by": "roc(n)", "keep": 1}}
several = {"dataset": "us5", "scan": [{"name": "a", "where": "close > 1"}, {"name": "b", "where": "close > sma(20)"}]}
accepted = ask("POST", "/v1/scans", {"document": scan})
one = f"/v1/scans/{accepted['scan']}"
ASKED = [
    ("POST", "/v1/answers", "/v1/answers", {"document": scan}),
    ("POST", "/v1/answers", "/v1/answers", {"document": sweep}),
    ("POST", "/v1/answers", "/v1/answers", {"document": several}),
    ("POST", "/v1/answers", "/v1/answers", {"document": {**scan, "where": "rsi(300) > 1", "history": {"bars": 200, "origin": True}}, "as_of": "2012-08-01"}),
    ("GET", f"{one}/answer?wait_s=60", "/v1/scans/{scan}/answer", None),
    ("GET", one, "/v1/scans/{scan}", None),
    ("GET", f"{one}/report", "/v1/scans/{scan}/report", None),
    ("DELETE", one, "/v1/scans/{scan}", None),
    ("GET", "/v1/scans", "/v1/scans", None),
    ("POST", "/v1/explain", "/v1/explain", {"document": scan}),
    ("POST", "/v1/why", "/v1/why", {"document": scan, "symbols": ["IBM", "FB"]}),
    ("POST", "/v1/why", "/v1/why", {"document": {**scan, "where": "tf('1w', rsi(5)) > 1 and xs_rank(roc(5)) < 3"}, "symbols": ["IBM"]}),
    ("POST", "/v1/near", "/v1/near", {"document": scan, "most": 2}),
    ("POST", "/v1/series", "/v1/series", {"dataset": "us5", "symbol": "IBM", "exprs": ["rsi(14) as r", "close > 200 as up"], "bars": True}),
    ("POST", "/v1/study", "/v1/study", {"document": {"dataset": "us5", "where": "rsi(14) < 30"}, "by": "year"}),
    ("GET", "/v1/datasets", "/v1/datasets", None),
    ("GET", "/v1/datasets/us5?symbol=IBM&all=true", "/v1/datasets/{dataset}", None),
    ("GET", "/v1/datasets/us5/coverage", "/v1/datasets/{dataset}/coverage", None),
    ("GET", "/v1/indicators", "/v1/indicators", None),
    ("GET", "/v1/indicators/macd", "/v1/indicators/{name}", None),
    ("GET", "/v1/workers", "/v1/workers", None),
    ("GET", "/v1/coordinators", "/v1/coordinators", None),
    ("GET", "/v1/version", "/v1/version", None),
]
wrong = []


def check(schema, reply, place):
    validator = validator_for({**schema, "components": description["components"]})
    found = [f"{place}: {error.message} at {list(error.instance_path)}" for error in validator.iter_errors(reply)]
    wrong.extend(found[:3])
    return not found


for method, path, described, body in ASKED:
    responses = description["paths"][described][method.lower()]["responses"]
    schema = next(reply["content"]["application/json"]["schema"] for status, reply in responses.items() if status.startswith("2"))
    reply = ask(method, path, body)
    if check(schema, reply, f"{method} {path}") and isinstance(reply, dict):
        # And a field of another kind, or one that is missing, is noticed.
        required = (schema if "required" in schema else description["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]])["required"]
        known = len(wrong)
        for changed in ({**reply, required[0]: {"of": "another kind"}}, {key: value for key, value in reply.items() if key != required[0]}):
            if check(schema, changed, path):
                wrong.append(f"{method} {path}: '{required[0]}' may be anything")
            else:
                del wrong[known:]
if wrong:
    sys.exit("replies that are not as they are described:\n" + "\n".join(wrong))
print(f"{len(ASKED)} replies are as they are described")

//! The files of `deploy/`: rules, dashboards and docs use only metrics that exist, and alerts and the runbook refer to
//! each other.
//!
//! promtool checks whether the rules are right (`tests/external/promtool`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde_json::Value;
use trawl_telemetry::metrics::{Kind, declared};
use trawl_telemetry::names::attribute;
use trawl_tests::jaeger::serve;
use trawl_tests::otlp::Sink;
use trawl_tests::{etcd, executable, process};

use crate::promql::{Named, named};

/// Labels that come from the targets, not from the metrics: Prometheus' own, and those set in the files of `deploy/`.
const TARGET_LABELS: [&str; 7] = ["instance", "job", "namespace", "pod", "node", "alertstate", "cluster"];
/// Of NVIDIA's dcgm-exporter, and of Prometheus itself.
const OTHERS: [&str; 6] =
    ["DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "up", "ALERTS"];
/// Their labels that are used.
const OTHER_LABELS: [&str; 3] = ["UUID", "alertname", "worker"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// A YAML file, of which every document is read, as JSON.
fn yaml(path: &str) -> Vec<Value> {
    let python = std::env::var("TRAWL_PYTHON").expect("TRAWL_PYTHON: tools/get-venv prints it");
    let script = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(open(sys.argv[1]))), sys.stdout)";
    let ended = process::run(Command::new(python).args(["-c", script]).arg(root().join(path)));
    serde_json::from_str(&ended.expect_code(0).stdout).expect("JSON")
}

fn files(folder: &str, ending: &str) -> Vec<String> {
    let mut found: Vec<String> = std::fs::read_dir(root().join(folder))
        .unwrap_or_else(|e| panic!("{folder}: {e}"))
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(ending))
        .map(|name| format!("{folder}/{name}"))
        .collect();
    found.sort();
    assert!(!found.is_empty(), "{folder} has no {ending}");
    found
}

fn rules() -> Vec<Value> {
    let files = files("deploy/prometheus", ".yaml");
    let groups: Vec<Value> = files.iter().flat_map(|file| yaml(file)).flat_map(|file| list(&file["groups"])).collect();
    groups.iter().flat_map(|group| list(&group["rules"])).collect()
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_else(|| panic!("no list: {value}"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// Name -> label -> its values; no values where they are not known.
type Known = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn known() -> Known {
    let mut known = Known::new();
    for about in declared() {
        let labels = about
            .labels
            .iter()
            .map(|(label, values)| ((*label).to_owned(), values.iter().map(|v| (*v).to_owned()).collect()));
        let mut labels: BTreeMap<String, BTreeSet<String>> = labels.collect();
        if about.kind == Kind::Histogram {
            labels.insert("le".to_owned(), BTreeSet::new());
        }
        known.extend(about.query_names().into_iter().map(|name| (name, labels.clone())));
    }
    known
}

/// Every label of every metric and of what rules make of them.
fn labels_of_all(known: &Known) -> BTreeSet<String> {
    let of_metrics = known.values().flat_map(|labels| labels.keys().cloned());
    of_metrics.chain([&TARGET_LABELS[..], &OTHER_LABELS].concat().into_iter().map(str::to_owned)).collect()
}

#[track_caller]
fn check(expression: &str, known: &Known, recorded: &BTreeSet<String>, place: &str) {
    let Named { metrics, labels } = named(expression).unwrap_or_else(|why| panic!("{place}: {why} in {expression}"));
    assert!(!metrics.is_empty(), "{place}: {expression} names no metric");
    for (metric, matched) in &metrics {
        if recorded.contains(metric) || OTHERS.contains(&metric.as_str()) {
            continue;
        }
        let of = known.get(metric).unwrap_or_else(|| panic!("{place}: there is no metric {metric}, in {expression}"));
        for (label, values) in matched {
            if TARGET_LABELS.contains(&label.as_str()) {
                continue;
            }
            let legal =
                of.get(label).unwrap_or_else(|| panic!("{place}: {metric} has no label {label}, in {expression}"));
            for value in values.iter().filter(|value| !legal.is_empty() && !value.contains(['$', '*'])) {
                assert!(legal.contains(value), "{place}: {label} of {metric} is never '{value}', in {expression}");
            }
        }
    }
    let all = labels_of_all(known);
    let unknown: Vec<&String> = labels.iter().filter(|label| !all.contains(*label)).collect();
    assert!(unknown.is_empty(), "{place}: nothing has the labels {unknown:?}, in {expression}");
}

fn recorded() -> BTreeSet<String> {
    rules().iter().filter_map(|rule| rule["record"].as_str()).map(str::to_owned).collect()
}

#[test]
fn a_release_archive_works_in_an_empty_folder_and_carries_its_licences() {
    let python = std::env::var("TRAWL_PYTHON").expect("TRAWL_PYTHON: tools/get-venv prints it");
    let out = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new(&python);
    command.arg(root().join("tools/dist")).arg("--binary").arg(executable::trawl()).arg("--out").arg(out.path());
    let ended = process::run(&mut command).expect_code(0);
    assert!(ended.stdout.contains("tried in an empty folder: trawl-"), "{}", ended.stdout);
    let sums = std::fs::read_to_string(out.path().join("SHA256SUMS")).expect("SHA256SUMS");
    let name = sums.split_whitespace().nth(1).expect("a name beside its digest");
    let checked = process::run(Command::new("sha256sum").args(["--check", "SHA256SUMS"]).current_dir(out.path()));
    checked.expect_code(0);
    let listed = process::run(Command::new("tar").arg("tzf").arg(out.path().join(name))).expect_code(0).stdout;
    let files: BTreeSet<&str> = listed.lines().filter_map(|line| line.split_once('/').map(|(_, file)| file)).collect();
    for file in ["trawl", "LICENSE", "NOTICE", "README.md", "THIRD-PARTY-LICENSES.txt", "sbom.cdx.json"] {
        assert!(files.contains(file), "the archive lacks {file}: {files:?}");
    }
    // A licence nobody has decided on stops a release.
    let script = "import importlib.machinery as m, importlib.util as u, sys; l = m.SourceFileLoader('dist', sys.argv[1]); \
        d = u.module_from_spec(u.spec_from_loader('dist', l)); l.exec_module(d); \
        print([d.chosen(e) for e in ('MIT/Apache-2.0', '(MIT OR GPL-3.0) AND ISC', 'GPL-3.0', \
        'MIT AND GPL-3.0', '(MIT OR ISC) AND GPL-3.0', 'Apache-2.0 WITH LLVM-exception')])";
    let judged = process::run(Command::new(python).args(["-c", script]).arg(root().join("tools/dist"))).expect_code(0);
    assert_eq!(judged.stdout.trim(), "[True, True, False, False, False, True]");
}

#[test]
fn images_of_others_are_pinned_by_the_digests_that_a_registry_names() {
    let files = [
        "deploy/compose.yaml",
        "deploy/cluster/compose.yaml",
        "deploy/kubernetes/jaeger.yaml",
        "deploy/kubernetes/load-bars.yaml",
        "helm/trawl/values.yaml",
    ];
    let copy = tempfile::tempdir().expect("a temporary folder");
    let others = ["deploy/kubernetes/collector-values.yaml", "deploy/images/Dockerfile", "deploy/pin-images"];
    for file in files.into_iter().chain(others) {
        let path = copy.path().join(file);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::copy(root().join(file), path).expect("a copy");
    }
    // The manifest of an image, as this registry has it, is the image's name.
    let registry = copy.path().join("skopeo");
    std::fs::write(&registry, "#!/bin/sh\nprintf '%s' \"$3\"\n").expect("a script");
    std::fs::set_permissions(&registry, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a script");
    let path = format!("{}:{}", copy.path().display(), std::env::var("PATH").unwrap_or_default());
    let pin =
        || process::run(Command::new(copy.path().join("deploy/pin-images")).env("PATH", &path)).expect_code(0).stdout;
    let printed = pin();
    assert!(printed.lines().count() >= 5, "{printed}");
    for line in printed.lines() {
        let (image, digest) = line.split_once('@').expect("an image and its digest");
        assert_eq!(digest, format!("sha256:{}", hex(image)), "{image}");
    }
    for file in files {
        let (was, now) = (read(file), std::fs::read_to_string(copy.path().join(file)).expect("a copy"));
        assert_ne!(was, now, "{file}");
        let unpinned = now.lines().filter_map(|line| line.trim().strip_prefix("image: "));
        let unpinned: Vec<&str> =
            unpinned.filter(|i| !i.contains('@') && !i.contains("${") && i.contains('/')).collect();
        assert!(unpinned.is_empty(), "{file}: {unpinned:?}");
    }
    // Another run finds what it wrote.
    assert_eq!(pin(), printed);
}

/// The SHA-256 of how the script names an image to the registry.
fn hex(image: &str) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(format!("docker://{image}")).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn rules_name_only_metrics_that_exist() {
    let (known, recorded) = (known(), recorded());
    let rules = rules();
    assert!(rules.len() > 40 && recorded.iter().all(|name| name.starts_with("trawl:")), "{recorded:?}");
    for rule in &rules {
        let name = rule["alert"].as_str().or(rule["record"].as_str()).expect("a rule has a name");
        // An objective is a number of the operator's.
        if !name.ends_with(":objective") {
            check(text(&rule["expr"]), &known, &recorded, name);
        }
    }
}

#[test]
fn dashboards_name_only_metrics_that_exist() {
    let (known, recorded) = (known(), recorded());
    let mut ids = BTreeSet::new();
    for file in files("deploy/grafana", ".json") {
        let board: Value = serde_json::from_str(&read(&file)).expect("JSON");
        assert!(ids.insert(text(&board["uid"]).to_owned()), "{file}: another dashboard has its uid");
        let variables: BTreeSet<String> =
            list(&board["templating"]["list"]).iter().map(|variable| text(&variable["name"]).to_owned()).collect();
        let panels = list(&board["panels"]);
        let mut numbers = BTreeSet::new();
        let mut queries = 0;
        for panel in &panels {
            let place = format!("{file}, {}", panel["title"]);
            assert!(
                numbers.insert(panel["id"].as_u64().expect("a panel has an id")),
                "{place}: another panel has its id"
            );
            for target in panel["targets"].as_array().into_iter().flatten() {
                let source = text(&target["datasource"]["uid"]);
                assert!(
                    source.strip_prefix("${").and_then(|s| s.strip_suffix('}')).is_some_and(|s| variables.contains(s))
                );
                if let Some(expression) = target["expr"].as_str() {
                    check(expression, &known, &recorded, &place);
                    queries += 1;
                }
            }
        }
        assert!(queries > 10, "{file}: {queries} queries");
        for variable in list(&board["templating"]["list"]).iter().filter_map(|v| v["query"]["query"].as_str()) {
            let asked = variable
                .strip_prefix("label_values(")
                .and_then(|v| v.split(',').next())
                .expect("label_values(METRIC, LABEL)");
            check(asked, &known, &recorded, &file);
        }
    }
    assert_eq!(ids.len(), 3, "{ids:?}");
}

#[test]
fn every_metric_is_used_on_a_dashboard_or_in_a_rule() {
    let files = [files("deploy/grafana", ".json"), files("deploy/prometheus", ".yaml")].concat();
    let text: String = files.iter().map(|file| read(file)).collect();
    let unseen: Vec<String> = declared()
        .iter()
        .filter(|about| !about.query_names().iter().any(|name| text.contains(name.as_str())))
        .map(|about| about.name.to_owned())
        .collect();
    // Every host's own dashboard shows these two.
    assert!(unseen.iter().all(|name| name.starts_with("process_")), "on no dashboard and in no rule: {unseen:?}");
}

#[test]
fn docs_name_only_metrics_that_exist() {
    let (known, recorded) = (known(), recorded());
    let families: BTreeSet<String> = declared().iter().map(|about| about.name.to_owned()).collect();
    let pages = [files("docs", ".md"), files("deploy", ".md")].concat();
    let mut seen = 0;
    for page in &pages {
        let text = read(page);
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | ':')));
        for word in
            words.map(|word| word.trim_matches(':')).filter(|w| w.starts_with("trawl_") || w.starts_with("trawl:"))
        {
            // Users' tokens and crates have names with this prefix too.
            if word == "trawl_" || word.contains("::") {
                continue;
            }
            let exists = known.contains_key(word) || families.contains(word) || recorded.contains(word);
            assert!(exists, "{page}: there is no metric {word}");
            seen += 1;
        }
    }
    assert!(seen > 60, "{seen}");
}

#[test]
fn every_alert_has_its_section_in_the_runbook_and_the_reverse() {
    let page = read("docs/runbook.md");
    let sections: BTreeMap<&str, &str> =
        page.split("\n## ").skip(1).map(|section| section.split_once('\n').expect("a section has text")).collect();
    let rules = rules();
    let alerts: BTreeSet<&str> = rules.iter().filter_map(|rule| rule["alert"].as_str()).collect();
    assert_eq!(sections.keys().copied().collect::<BTreeSet<_>>(), alerts);
    for (alert, section) in sections {
        for part in ["**Means.** ", "**Look at** ", "**Do.** "] {
            assert!(section.contains(part), "the section of {alert} lacks {part}");
        }
    }
    for rule in rules.iter().filter(|rule| rule["alert"].is_string()) {
        let (alert, notes) = (text(&rule["alert"]), &rule["annotations"]);
        let anchor = format!("docs/runbook.md#{}", alert.to_lowercase());
        assert!(text(&notes["runbook_url"]).ends_with(&anchor), "{alert}: {}", notes["runbook_url"]);
        assert!(!text(&notes["summary"]).is_empty() && !text(&notes["description"]).is_empty(), "{alert}");
        assert!(["critical", "warning", "info"].contains(&text(&rule["labels"]["severity"])), "{alert}");
    }
    // The panels that it refers to exist.
    let boards: String = files("deploy/grafana", ".json").iter().map(|file| read(file)).collect();
    for panel in ["Leadership", "Work in and out", "One worker slower than the others", "Bars kept", "Shards refused"] {
        assert!(page.contains(panel) && boards.contains(&format!("\"title\": \"{panel}\"")), "{panel}");
    }
}

/// What a pipeline names must be declared, and what is declared must be used.
#[track_caller]
fn check_pipelines(config: &Value, place: &str) {
    let service = &config["service"];
    for kind in ["receivers", "processors", "exporters"] {
        let keys = |value: &Value| -> BTreeSet<String> {
            let map = value.as_object().unwrap_or_else(|| panic!("{place}: {value}"));
            map.iter().filter(|(_, value)| !value.is_null()).map(|(key, _)| key.clone()).collect()
        };
        let pipelines = service["pipelines"].as_object().expect("pipelines");
        let used = pipelines.values().filter(|p| !p.is_null()).flat_map(|p| list(&p[kind]));
        let used: BTreeSet<String> = used.map(|name| text(&name).to_owned()).collect();
        assert_eq!(used, keys(&config[kind]), "{place}: {kind}");
    }
}

#[test]
fn the_collector_keeps_errors_hedges_and_the_slowest_by_names_that_spans_have() {
    let own = yaml("deploy/otelcol/config.yaml").remove(0);
    let chart = yaml("deploy/kubernetes/collector-values.yaml").remove(0)["config"].clone();
    check_pipelines(&own, "deploy/otelcol");
    check_pipelines(&chart, "deploy/kubernetes");
    assert_eq!(own["processors"]["tail_sampling"], chart["processors"]["tail_sampling"], "both have the same policies");
    let policies = list(&own["processors"]["tail_sampling"]["policies"]);
    let mut keys = BTreeSet::new();
    for policy in &policies {
        let body = &policy[text(&policy["type"])];
        assert!(body.is_object(), "{policy} has the settings of its type");
        keys.extend(body["key"].as_str().map(str::to_owned));
    }
    let kinds: BTreeSet<&str> = policies.iter().map(|policy| text(&policy["type"])).collect();
    assert!(kinds.is_superset(&BTreeSet::from(["status_code", "boolean_attribute", "latency"])), "{kinds:?}");
    assert_eq!(keys, BTreeSet::from(["trawl.hedge", "trawl.purpose", "trawl.slow"].map(str::to_owned)));
    let named = |key: &String| attribute::ALL.iter().any(|(name, _)| name == key);
    assert!(keys.iter().all(named), "spans have no such attributes: {keys:?}");
}

#[test]
fn jaeger_is_configured_the_same_here_and_on_kubernetes() {
    let own = yaml("deploy/jaeger/config.yaml").remove(0);
    check_pipelines(&own, "deploy/jaeger");
    let objects = yaml("deploy/kubernetes/jaeger.yaml");
    let map = objects.iter().find(|object| object["kind"] == "ConfigMap").expect("a ConfigMap");
    let python = std::env::var("TRAWL_PYTHON").expect("TRAWL_PYTHON: tools/get-venv prints it");
    let script = "import json, sys, yaml; json.dump(yaml.safe_load(sys.argv[1]), sys.stdout)";
    let there =
        process::run(Command::new(python).args(["-c", script, text(&map["data"]["config.yaml"])])).expect_code(0);
    let there: Value = serde_json::from_str(&there.stdout).expect("JSON");
    check_pipelines(&there, "deploy/kubernetes");
    for part in ["service", "processors", "exporters"] {
        assert_eq!(own[part], there[part], "{part}");
    }
}

#[test]
fn the_compose_file_mounts_existing_files_and_listens_on_loopback() {
    let compose = yaml("deploy/compose.yaml").remove(0);
    let services = compose["services"].as_object().expect("services");
    let mut mounted = BTreeSet::new();
    for (name, service) in services {
        let image = text(&service["image"]);
        let tag = image.rsplit(':').next().expect("a tag");
        assert!(tag.contains('.') && !image.ends_with(":latest"), "{name}: {image} has no version");
        for volume in service["volumes"].as_array().into_iter().flatten() {
            let from = text(volume).split(':').next().expect("a file").to_owned();
            assert!(text(volume).ends_with(":ro") && root().join("deploy").join(&from).is_file(), "{name}: {volume}");
            mounted.insert(from);
        }
    }
    for file in [files("deploy/grafana", ".json"), files("deploy/prometheus", ".yaml")].concat() {
        let file = file.replacen("deploy", ".", 1);
        assert!(mounted.contains(&file), "{file} is not mounted");
    }
    assert!(!read("deploy/compose.yaml").contains("0.0.0.0"), "it is reachable on loopback only");
    let sources = yaml("deploy/grafana/provisioning/datasources.yaml").remove(0);
    let ids: BTreeSet<String> = list(&sources["datasources"]).iter().map(|s| text(&s["uid"]).to_owned()).collect();
    assert_eq!(ids, BTreeSet::from(["jaeger".to_owned(), "prometheus".to_owned()]));
}

#[test]
fn a_slow_shard_is_found_by_the_script_of_the_walk_through() {
    let sink = Arc::new(Sink::start());
    let jaeger = serve(Arc::clone(&sink));
    let etcd = etcd::executable();
    let path = format!("{}:{}", etcd.parent().expect("a folder").display(), std::env::var("PATH").expect("PATH"));
    let mut script = Command::new(root().join("deploy/jaeger/find-slow-shard"));
    script.args(["--jaeger", &jaeger, "--otlp", &sink.url, "--trawl"]).arg(executable::trawl()).env("PATH", path);
    let found = process::run(&mut script).expect_code(0);
    assert!(found.stdout.contains("the slowest shard was slow-worker's, as it should be"), "{found:?}");
    let mut look = Command::new(root().join("deploy/jaeger/find-slow-shard"));
    let seen = process::run(look.args(["--look", "--jaeger", &jaeger])).expect_code(0);
    assert!(seen.stdout.lines().any(|line| line.contains("slow-worker") && line.contains("most in")), "{seen:?}");
}

#[test]
fn without_jaeger_the_script_says_that_nothing_was_checked() {
    let mut script = Command::new(std::env::var("TRAWL_PYTHON").expect("TRAWL_PYTHON: tools/get-venv prints it"));
    let ended = process::run(script.arg(root().join("deploy/jaeger/find-slow-shard")).env("PATH", "/nowhere"));
    assert!(ended.code == Some(77) && ended.stderr.starts_with("SKIPPED: "), "{ended:?}");
}

//! Deploying Trawl: the chart rendered by a real helm, the Dockerfile and the compose file parsed. The checks are in
//! `tests/python/helm_chart.py` and beside it; here each part is a test.

use std::path::PathBuf;
use std::process::Command;

use trawl_tests::executable::{repository, trawl};
use trawl_tests::process;

fn python() -> PathBuf {
    let python = std::env::var_os("TRAWL_PYTHON")
        .map(PathBuf::from)
        .unwrap_or_else(|| repository().join("target/venv/bin/python"));
    assert!(python.is_file(), "no Python environment: run ./test, or tools/get-venv once");
    python
}

/// One part of the checks; fails with every problem that it finds.
#[track_caller]
fn check_chart(part: &str) {
    let helm =
        std::env::var_os("TRAWL_HELM").map(PathBuf::from).unwrap_or_else(|| repository().join("target/tools/helm3"));
    assert!(helm.is_file(), "no helm: run ./test, or tools/get-helm once");
    let mut command = Command::new(python());
    command.arg(repository().join("tests/python/helm_chart.py")).arg("--helm").arg(helm);
    command.arg("--trawl").arg(trawl()).arg(part);
    println!("{}", process::run(&mut command).expect_code(0).stdout);
}

#[test]
fn the_chart_renders_objects_that_pass_kubernetes_schemas_and_a_security_review() {
    check_chart("objects");
}

#[test]
fn every_value_of_the_chart_has_its_described_effect() {
    check_chart("branches");
}

#[test]
fn wrong_or_contradictory_values_are_refused_with_advice() {
    check_chart("refusals");
}

#[test]
fn options_values_and_their_page_agree() {
    check_chart("keys");
}

#[test]
fn pages_rules_and_dashboards_of_the_chart_are_current() {
    check_chart("pages");
}

#[test]
fn the_program_accepts_the_settings_of_the_chart() {
    check_chart("server");
}

#[test]
fn the_images_and_the_compose_file_are_well_made() {
    let mut command = Command::new(python());
    command.arg(repository().join("tests/python/deploy_files.py"));
    println!("{}", process::run(&mut command).expect_code(0).stdout);
}

#[test]
#[ignore = "needs a container engine: just container-smoke"]
fn container_images_build_and_a_cluster_of_them_scans() {
    process::run(&mut Command::new(repository().join("deploy/cluster/smoke"))).expect_code(0);
}

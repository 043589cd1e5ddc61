# Things done twice. Every recipe is one command that also works without `just`.

# List the recipes
default:
    @just --list

# Every test, with what the tests need
test *filter:
    ./test {{ filter }}

# What a change must pass: tests, clippy, fmt
ci:
    .ci/run

# Format the sources
fmt:
    cargo fmt --all

# Clippy, warnings denied
lint:
    cargo clippy --profile ci --workspace --all-targets -- -D warnings

# Refresh the snapshots of tests/tests/snapshots and the output in README.md and docs/tour.md (look at the difference before you commit it)
bless:
    tools/bless

# Benchmarks: `just bench scheduler` plans and schedules for 1,000 workers; `just bench screen` compares with TA-Lib in the same run, `just bench atc` with the definition, `just bench jobs` whole jobs of users with other libraries; `just bench metrics` tells what counting costs, `just bench plan` how long a wide sweep takes to plan, `just bench takeover` how long a new leader takes with 100,000 scans in etcd
bench name *options:
    benches/{{ name }}.sh {{ options }}

# etcd, a coordinator and three workers on loopback, until Ctrl-C
demo:
    cargo run --release -- cluster up --workers 3

# 10,000 symbols, every way to run a scan: are the bytes the same?
same-bytes *options:
    cargo build --release -p trawl
    tools/same_bytes.py {{ options }}

# A rolling upgrade from an earlier commit's executable to this one, while scans run: `just upgrade --rounds 5`
upgrade *options:
    cargo build --release -p trawl
    TRAWL_ETCD=$(tools/get-etcd) tools/upgrade.py --earlier "$(tools/get-earlier)" {{ options }}

# Imports killed with SIGKILL at random points, and run again: is the old snapshot whole, are the bytes those of an undisturbed import? `just import-kill --points 50 --job append`, vendors and lakes: `--job sources`
import-kill *options:
    cargo build --locked --release -p trawl
    tools/import_kill.py --trawl "${CARGO_TARGET_DIR:-target}/release/trawl" {{ options }}

# 257 real stocks from PyPI's fastquant: faults counted by reason, a lake and back, every daily scan of examples/. `just real-stocks --out FILE`
real-stocks *options:
    cargo build --profile ci --quiet -p trawl
    "$(tools/get-venv)" tools/real_stocks.py --trawl "${CARGO_TARGET_DIR:-target}/ci/trawl" {{ options }}

# From a bucket to MACD: 4,000 symbols of flat files in a slow local S3, imported, then scanned with files fetched before, by the threads that compute, and ahead. Keeps benches/results/pipeline-DATE.json; smaller ones stay in target: `just pipeline --symbols 400 --days 60`. On a GPU, or on the driver for tests (simulated): `just pipeline --device`
pipeline *options:
    cargo build --locked --release -p trawl
    benches/pipeline.py --trawl "${CARGO_TARGET_DIR:-target}/release/trawl" --store-python "$(tools/get-venv soak/store)" {{ options }}

# What the host does for scans whose bars a device has, on the driver for tests, whose kernels then do nothing (simulated). Keeps benches/results/device-host-DATE.json; with an earlier executable in turns: `just device-host --before FILE`
device-host *options:
    cargo build --locked --release --workspace --bins
    benches/device_host.py --trawl "${CARGO_TARGET_DIR:-target}/release/trawl" --etcd "$(tools/get-etcd)" {{ options }}

# What appending minutes costs, or how scans slow down with the number of days that were appended: `just append-bench days`
append-bench *options:
    cargo build --locked --release -p trawl
    tools/append_bench.py --trawl "${CARGO_TARGET_DIR:-target}/release/trawl" {{ options }}

# A market of minutes that is larger than memory (20 GB, takes minutes and three times the disk): importing and scanning it. Smaller: `just minutes --symbols 100 --bars 50000`
minutes *options:
    cargo build --locked --release -p trawl
    "$(tools/get-venv)" tools/minutes_bench.py --trawl "${CARGO_TARGET_DIR:-target}/release/trawl" {{ options }}

# Every candle pattern against TA-Lib, on bars that make each of them happen. `just patterns --seed 7`
patterns *options:
    cargo build --release -p trawl
    $(tools/get-venv) tests/python/live_patterns.py {{ options }}

# Every combination of devices, memory modes, streams, graphs, who gathers, prefetching and precision, and 100,000 batches, on the test driver (six minutes)
devices:
    TRAWL_DEVICE_PAIRS=all TRAWL_DEVICE_BATCHES=100000 cargo test --profile ci -p trawl-kernels --test engine -- memory_modes:: pairwise:: leaks:: prefetch:: --test-threads 1 --nocapture

# Random scans on random markets: the engine against the reference evaluator. `just agreement 100000 SEED`
agreement cases="100000" seed="1":
    TRAWL_AGREEMENT_CASES={{ cases }} TRAWL_AGREEMENT_SEED={{ seed }} cargo test --profile ci -p trawl-tests --test integration agreement:: -- --nocapture

# The executable against TA-Lib, live: random series, random parameters. `just live 1000000 SEED`
live cases="200000" seed="1":
    cargo build --profile ci -p trawl -p trawl-kernels --bins --examples
    "$(tools/get-venv)" tools/live --cases {{ cases }} --seed {{ seed }} --reference "${CARGO_TARGET_DIR:-target}/ci/examples/reference" --trawl "${CARGO_TARGET_DIR:-target}/ci/trawl"

# Measures docs/accuracy.md anew: every indicator against double-double arithmetic
accuracy:
    cargo build --profile ci -p trawl -p trawl-kernels --bins --examples
    "$(tools/get-venv)" tools/live/accuracy.py --reference "${CARGO_TARGET_DIR:-target}/ci/examples/reference" --trawl "${CARGO_TARGET_DIR:-target}/ci/trawl"

# Constants of the elementary functions, written anew; their errors against mpmath, into docs/accuracy.md; and their bits on the emulator: `just elementary 1000000`
elementary points="1000000":
    "$(tools/get-venv)" tools/make_elementary.py
    cargo build --profile ci -p trawl-plan --example elementary
    "$(tools/get-venv)" tools/elementary_accuracy.py --program "${CARGO_TARGET_DIR:-target}/ci/examples/elementary" --points {{ points }} --page docs/accuracy.md
    TRAWL_ELEMENTARY_POINTS={{ points }} cargo test --profile ci -p trawl-kernels --test engine elementary::

# Parser and planner under random and mutated text for so many seconds: `just fuzz 300 SEED`
fuzz seconds="60" seed="1":
    cargo run --profile ci -p trawl-plan --example fuzz -- {{ seconds }} {{ seed }}

# The CPU engine under Valgrind: reads and writes outside of allocations, values that were never written. Minutes a test
memcheck *filter="resident::symbols_of_many_ages_share_tiles properties::the_last_bar_alone_equals_that_bar_of_the_whole_history":
    tools/memcheck {{ filter }}

# The CPU engine's unit tests under Miri. Needs a nightly toolchain with its component miri; has not been run yet
miri *filter:
    MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test -p trawl-kernels --lib -- {{ filter }}

# The pages of docs/indicators, written anew from the declarations
docs:
    cargo run --profile ci --quiet -- indicators --pages docs/indicators
    cargo run --profile ci --quiet -p trawl-telemetry --example metrics_page > docs/metrics.md

# The documentation as a book in target/book; `just book serve` shows it while you write
book command="build":
    "$(tools/get-venv)" -m mkdocs {{ command }} --strict

# The comparison in README.md, written anew from benches/results
compare-table:
    tools/compare_table.py

# The pages about the chart, written anew from its values' comments and the program's options
chart-docs:
    cargo build --profile ci --quiet -p trawl
    "$(tools/get-venv)" tools/chart_docs.py --trawl "${CARGO_TARGET_DIR:-target}/ci/trawl"

# A real Prometheus over real clusters on loopback: alerts fire by their faults and go away, every query of every dashboard is asked. About ten minutes; `just observability --only leader`
observability *options:
    cargo build --profile ci --quiet -p trawl
    "$(tools/get-venv)" tools/observability --trawl "${CARGO_TARGET_DIR:-target}/ci/trawl" {{ options }}

# The walk of deploy/README.md and what docs/telemetry.md says, on the real collector and Jaeger 2, which Go builds the first time. `just jaeger --only walk`
jaeger *options:
    cargo build --profile ci --quiet -p trawl
    python3 tools/jaeger_walk --trawl "${CARGO_TARGET_DIR:-target}/ci/trawl" {{ options }}

# Bars and results in a bucket of a real server of S3, MinIO, which Go builds the first time: what the documentation says of it, and Trawl's own tests of buckets; and a container of Azurite, which npm fetches. Four minutes; `just s3 --only keys`
s3 *options:
    cargo build --profile ci --quiet -p trawl
    "$(tools/get-venv soak/store)" tools/s3_walk --trawl "${CARGO_TARGET_DIR:-target}/ci/trawl" {{ options }}

# The chart on a real control plane and real kubelets in namespaces of this machine (root is needed), which Go builds the first time: installed, scaled, drained and upgraded while scans run; NetworkPolicies enforced, an HPA, KEDA, GPU workers, a bucket, cert-manager, the chart in a registry. Twenty minutes, with what tools/get-keda, -cert-manager, -prometheus-adapter, -network-policies, -minio, -registry and -earlier build; `just kubernetes --only trial`
kubernetes *options:
    cargo build --profile ci --quiet -p trawl
    "$(tools/get-venv)" tools/kubernetes_walk --trawl "${CARGO_TARGET_DIR:-target}/ci/trawl" {{ options }}

# What the programs that `just kubernetes` builds cost: seconds, sizes, each from an empty cache of Go's. An hour; `just build-times coredns`
build-times *options:
    tools/build_times.py {{ options }}

# The workspace for aarch64, built in a Debian that debootstrap makes in target/arm (root is needed), and its bytes compared with this machine's under qemu. Half an hour the first time; `just arm --dist`, `just arm --profile dist`; the Python wheel alone: `just arm --only --wheel`
arm *options:
    cargo build --profile ci --quiet --workspace --all-targets
    python3 tools/arm --trawl "${CARGO_TARGET_DIR:-target}/ci/trawl" {{ options }}

# Packages (.deb, .rpm) out of the archives of tools/dist, and what an operator does with them under a systemd that boots in a Debian in target/packages (root is needed). Two minutes, once the Debian is there; `just packages --archive FILE`
packages *options:
    python3 tools/packages {{ options }}

# The procedures of docs/etcd.md on a real etcd while scans run: compaction, no space left, snapshots restored on one member and on three. Two minutes; `just etcd-drill --only restore`
etcd-drill *options:
    cargo build --profile ci --quiet -p trawl
    python3 tools/etcd_drill --trawl "${CARGO_TARGET_DIR:-target}/ci/trawl" {{ options }}

# The page in a browser: what tests/external/page does, and the memory of a page that is left open under ten scans a second. `just page --minutes 60 --only memory`
page *options:
    cargo build --profile ci --quiet -p trawl
    TRAWL_BIN="${CARGO_TARGET_DIR:-target}/ci/trawl" tests/external/page --only modules,scan,runs,names,cluster,looks,memory {{ options }}

# The chart's copies of the rules and dashboards in deploy/
chart-files:
    rm -f helm/trawl/files/rules/*.yaml helm/trawl/files/dashboards/*.json
    mkdir -p helm/trawl/files/rules helm/trawl/files/dashboards
    cp deploy/prometheus/*.yaml helm/trawl/files/rules/
    cp deploy/grafana/*.json helm/trawl/files/dashboards/

# What the chart's tests check, with helm 3 or 4: `just chart 4`
chart helm="3":
    cargo build --profile ci --quiet -p trawl
    for part in objects branches refusals keys pages server etcd; do \
        "$(tools/get-venv)" tests/python/helm_chart.py --helm "$(tools/get-helm {{ helm }})" --trawl "${CARGO_TARGET_DIR:-target}/ci/trawl" $part || exit 1; \
    done

# What a release hands out: a stripped executable with licences, bill of materials and checksums, in target/dist
dist *options:
    tools/dist {{ options }}

# Images built, a cluster of them in containers, scans, kills; needs a container engine
container-smoke:
    deploy/cluster/smoke

# Every golden case of Adaptive Trend Classification: cases, and the largest relative error of each column
atc-golden:
    cargo test --profile ci -p trawl-kernels --lib trend::golden -- --nocapture

# The scheduler in a simulated cluster with faults, so many seeds: `just sim 100000`
sim seeds="2000" first="0":
    TRAWL_SIM_SEEDS={{ seeds }} TRAWL_SIM_FIRST={{ first }} cargo test --profile ci --config 'profile.ci.package.trawl-coordinator.opt-level=2' -p trawl-coordinator --test sim whatever -- --nocapture

# One seed of the simulation again
sim-seed seed:
    TRAWL_SIM_SEED={{ seed }} cargo test --profile ci -p trawl-coordinator --test sim whatever -- --nocapture

# Real processes that die, stop and lose their links at random moments of real scans, so many schedules: `just chaos 200`
chaos seeds="8" first="0":
    cargo build --profile ci -p trawl
    TRAWL_CHAOS_SEEDS={{ seeds }} TRAWL_CHAOS_FIRST={{ first }} TRAWL_ETCD=$(tools/get-etcd) cargo test --profile ci -p trawl-tests --test integration chaos:: -- --nocapture

# One schedule of it again
chaos-seed seed:
    cargo build --profile ci -p trawl
    TRAWL_CHAOS_SEED={{ seed }} TRAWL_ETCD=$(tools/get-etcd) cargo test --profile ci -p trawl-tests --test integration chaos:: -- --nocapture

# A cluster without a shared folder on a bucket whose store fails, and does not answer for so many seconds
store-away seconds="20":
    cargo build --profile ci -p trawl
    TRAWL_STORE_AWAY_S={{ seconds }} TRAWL_ETCD=$(tools/get-etcd) cargo test --profile ci -p trawl-tests --test integration a_cluster_on_a_failing_store

# Ten scans a second for an hour over real processes, then a kill of the leader: nothing may be lost, nothing may grow. Keeps benches/results/soak-DATE.json and .png; fewer than 50 minutes stay in target/soak: `just soak --minutes 3`
soak *options:
    cargo build --release -p trawl
    "$(tools/get-venv soak)" tools/soak --etcd "$(tools/get-etcd)" {{ options }}

# A thousand scans at once, 200 stopped clients and answers of 64 MiB on a slow S3 that answers 503 at times: is the memory of coordinators what their results explain? Keeps benches/results/haul-DATE.json and .png; smaller ones stay in target/soak: `just haul --scans 50 --clients 8 --answers 2`
haul *options:
    cargo build --release -p trawl
    "$(tools/get-venv soak)" tools/soak/haul.py --etcd "$(tools/get-etcd)" --store-python "$(tools/get-venv soak/store)" {{ options }}

# Parity and speed on this machine's GPUs, compared with CuPy and numba.cuda, what devices gain by each feature, and a soak; keeps benches/results/gpu-DATE.json. Steps of at most 9 minutes: `just gpu --steps figures,keep`
gpu *options:
    benches/gpu.sh {{ options }}

# The page docs/parity.md, written anew from the declarations
parity:
    TRAWL_BLESS_PARITY=1 cargo test --profile ci -p trawl-kernels --test engine the_parity_page

# Generated kernels on the CPU, in three orders and under sanitizers: what CI runs and more plans. `just cuda-emulate 2000`
cuda-emulate plans="1000":
    tools/cuda_emulate {{ plans }}

# Machine code of generated kernels, walked without a GPU: cycles, instructions and bytes a bar. `just gpu-model 80` for another compute capability
gpu-model architecture="90":
    TRAWL_MODEL_ARCHITECTURE={{ architecture }} cargo test --profile ci -p trawl-kernels --test engine the_static_model_of -- --nocapture

# The figures that it may not exceed, written anew to kernels/tests/model (read the difference before you commit it)
gpu-model-bless:
    TRAWL_BLESS_MODEL=1 cargo test --profile ci -p trawl-kernels --test engine the_static_model_of -- --nocapture

# The Python package: builds the wheel (the first time minutes of compiling), and tests it in clean environments against the command line
python:
    cargo build --locked --profile ci -p trawl
    tests/external/python --build

# W1 over a frame of 10 million rows: trawl, polars-talib, TA-Lib and pandas-ta, each in a process of its own
python-bench *options:
    tools/python-bench {{ options }}

#!/usr/bin/env bash
# Whole jobs of users, end to end: Trawl beside polars, DuckDB, TA-Lib, NumPy, pandas and vectorbt, each way a new process, in turn, answers
# compared symbol by symbol. Prints tables and keeps benches/results/jobs-DATE.json (a part of it, or a quick run, stays in target/jobs).
#
#   benches/jobs.sh [--trawl FILE] [--quick] [--rounds N] [--jobs J1,J2] [--cold] [--import-rows N] [--scratch DIR] [--out FILE]
#
# The executable is FILE, else $TRAWL, else target/release/trawl, which is built first. The peers come from PyPI into target/jobs/venv
# (benches/jobs/requirements.txt); one that does not install here is reported and left out. $TRAWL_PEERS_PYTHON names a Python that has
# them instead.
set -euo pipefail
here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
trawl=${TRAWL:-}
options=()
while [ $# -gt 0 ]; do
    case $1 in
        --trawl) trawl=$2 && shift ;;
        --trawl=*) trawl=${1#*=} ;;
        --scratch | --out) options+=("$1" "$(cd "$here" && realpath -m "$2")") && shift ;;
        *) options+=("$1") ;;
    esac
    shift
done

# Makes the environment, anew if the requirements or the interpreter changed; prints its Python.
peers_python() {
    local venv=$target/jobs/venv requirements=benches/jobs/requirements.txt stamp package
    stamp=$({ python3 -VV; cat "$requirements"; } | sha256sum | cut -d' ' -f1)
    if [ "$(cat "$venv/stamp" 2>/dev/null)" != "$stamp" ]; then
        rm -rf "$venv"
        python3 -m venv "$venv" >&2
        while read -r package; do
            "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: \
                --constraint "$requirements" "$package" >&2 ||
                echo "benches/jobs.sh: $package does not install here and is LEFT OUT" >&2
        done < <(sed -n '/^# ---/q; /^[^#]/p' "$requirements")
        echo "$stamp" >"$venv/stamp"
    fi
    echo "$venv/bin/python"
}

if [ -z "$trawl" ]; then
    cargo build --locked --release --quiet -p trawl
    trawl=$target/release/trawl
else
    trawl=$(cd "$here" && realpath "$trawl")
fi
python=${TRAWL_PEERS_PYTHON:-$(peers_python)}
PYTHONDONTWRITEBYTECODE=1 exec "$python" benches/jobs/run.py --trawl "$trawl" --scratch "$target/jobs" "${options[@]}"

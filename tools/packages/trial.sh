# What an operator does with a package, under a systemd (boot.sh). Writes lines of claim, what was seen, yes or NO to /trial/KIND.claims.
# /trial has the package (package.deb or package.rpm) and etcd.
kind=$1
cd /trial
claim() { # CLAIM SEEN COMMAND...
    what=$1 seen=$2
    shift 2
    if "$@" >/dev/null 2>&1; then holds=yes; else holds=NO; fi
    printf '%s\t%s\t%s\n' "$what" "$(printf %s "$seen" | tr '\n\t' '  ')" "$holds" >>"/trial/$kind.claims"
}
settled() { # SECONDS COMMAND...: waits for it
    end=$(($(date +%s) + $1))
    shift
    while ! "$@" >/dev/null 2>&1; do
        [ "$(date +%s)" -lt $end ] || return 1
        sleep 0.2
    done
}
property() { systemctl show --property "$2" --value "$1"; }
services='trawl-coordinator trawl-worker'
case $kind in
deb)
    install='dpkg -i package.deb' again='dpkg -i package.deb' remove='dpkg --remove trawl' purge='dpkg --purge trawl'
    verify='dpkg --verify trawl'
    ;;
rpm)
    # Its database knows nothing of this Debian, so what it needs is looked at instead (below).
    install='rpm --install --nodeps package.rpm' again='rpm --upgrade --force --nodeps package.rpm' remove='rpm --erase trawl' purge=:
    # Group and size of settings differ from the package once they are changed; the group is set by the package itself.
    verify='rpm --verify --nodeps --nogroup --noconfig trawl'
    ;;
esac

said=$($install 2>&1)
claim "\`$install\`" "exit code $?" test -x /usr/bin/trawl
claim 'what was installed is what the package has' "$($verify 2>&1 | head -c 200)" test -z "$($verify 2>&1)"
claim 'the account `trawl`' "$(id trawl 2>&1)" id trawl
modes=$(stat -c '%a %U:%G' /etc/trawl /etc/trawl/coordinator.env /etc/trawl/worker.env | sort -u | paste -sd ,)
claim 'settings are readable by that account and by nobody else' "$modes" test "$modes" = '640 root:trawl,750 root:trawl'
claim 'nothing is started or enabled' "$(systemctl is-enabled $services | paste -sd ,), $(systemctl is-active $services | paste -sd ,)" \
    test "$(systemctl is-active $services | sort -u)" = inactive
said=$(systemd-analyze verify /usr/lib/systemd/system/trawl-*.service 2>&1)
claim '`systemd-analyze verify` of the units' "${said:-nothing}" test -z "$said"
mkdir -p /etc/systemd/system/trawl-worker.service.d
cp /usr/share/doc/trawl/trawl-worker-gpu.conf /etc/systemd/system/trawl-worker.service.d/gpu.conf
said=$(systemd-analyze verify /usr/lib/systemd/system/trawl-worker.service 2>&1)
claim 'the same with `trawl-worker-gpu.conf`' "${said:-nothing}" test -z "$said"
rm -r /etc/systemd/system/trawl-worker.service.d

# A cluster of one machine with certificates.
listen='--listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380'
systemd-run --quiet --unit etcd /trial/etcd --data-dir /var/lib/etcd $listen --initial-advertise-peer-urls http://127.0.0.1:2380 \
    --initial-cluster default=http://127.0.0.1:2380 >/dev/null 2>&1
trawl certs dev --dir /etc/trawl/tls >/dev/null 2>&1
chgrp -R trawl /etc/trawl/tls && chmod -R g+rX /etc/trawl/tls
for name in coordinator worker; do
    sed -i -e 's#^TRAWL_ETCD_ENDPOINTS=.*#TRAWL_ETCD_ENDPOINTS=http://127.0.0.1:2379#' -e "s#^TRAWL_ADVERTISE=.*:#TRAWL_ADVERTISE=127.0.0.1:#" \
        /etc/trawl/$name.env
done
before=$(cat /etc/trawl/coordinator.env | cksum)
systemctl daemon-reload
systemctl enable --now $services
client="--coordinator https://127.0.0.1:7400 --tls-ca /etc/trawl/tls/ca.pem --tls-cert /etc/trawl/tls/client.pem --tls-key /etc/trawl/tls/client.key"
workers() { trawl workers $client | grep -q serving; }
settled 60 workers || journalctl --no-pager --unit trawl-coordinator --unit trawl-worker --unit etcd | tail -40 >>"/trial/$kind.log"
claim '`systemctl enable --now` starts both, the worker registers' "$(systemctl is-active $services | paste -sd ,); $(trawl workers $client 2>&1 | tail -1 | head -c 200)" workers
users=$(ps -o user=,args= -C trawl 2>/dev/null | awk '{print $1}' | sort -u | paste -sd ,)
[ -n "$users" ] || users=$(for name in $services; do stat -c %U /proc/$(property $name MainPID); done | sort -u | paste -sd ,)
claim 'they run as that account' "$users" test "$users" = trawl
clauses='scan --dataset demo --quiet --format csv --output - --where'
trawl $clauses 'close > sma(close, 20)' >alone.csv 2>/dev/null
trawl $clauses 'close > sma(close, 20)' --fresh $client >through.csv 2>through.err
claim 'a scan through them has the bytes of one process' "$(wc -c <through.csv) bytes $(head -c 200 through.err)" cmp alone.csv through.csv
first=$(property trawl-worker MainPID)
systemctl kill --signal KILL trawl-worker
restarted() { [ "$(property trawl-worker NRestarts)" = 1 ] && [ "$(property trawl-worker MainPID)" != "$first" ] && workers; }
began=$(date +%s)
settled 30 restarted
claim 'a worker that is killed is started again' "$(property trawl-worker NRestarts) restart, serving after $(($(date +%s) - began)) s" restarted
pids() { for name in $services; do property $name MainPID; done | paste -sd ,; }
before_pids=$(pids)
$again >>"/trial/$kind.log" 2>&1
settled 60 workers
claim 'the package installed again: settings are kept, services run the new executable' "$before_pids, then $(pids)" \
    test "$before" = "$(cksum </etc/trawl/coordinator.env)" -a "$before_pids" != "$(pids)"
trawl $clauses 'close > sma(close, 20)' --fresh $client >through.csv 2>through.err
claim 'and a scan after it has the same bytes' "$(wc -c <through.csv) bytes $(head -c 200 through.err)" cmp alone.csv through.csv
began=$(date +%s)
systemctl stop trawl-worker trawl-coordinator
results=$(for name in $services; do property $name Result; done | paste -sd ,)
claim '`systemctl stop` drains within `TimeoutStopSec`' "$(($(date +%s) - began)) s, results $results" test "$results" = success,success
systemctl start $services
settled 60 workers
$remove >>"/trial/$kind.log" 2>&1
claim 'removed: services are stopped and disabled, the executable is gone' "$(systemctl is-active $services | paste -sd ,)" \
    test ! -e /usr/bin/trawl -a "$(systemctl is-active $services | sort -u)" = inactive
kept=$(ls /etc/trawl | paste -sd ,)
claim 'settings and certificates that were changed stay' "$kept" test -d /etc/trawl/tls
$purge >>"/trial/$kind.log" 2>&1
[ $kind != deb ] || claim 'purged: settings are gone, data stay' "$(ls /etc/trawl 2>&1 | paste -sd ,); $(ls /var/lib/trawl | paste -sd ,)" \
    test ! -e /etc/trawl/coordinator.env -a -d /var/lib/trawl/data
true

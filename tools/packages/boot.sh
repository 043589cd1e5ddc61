# Boots the Debian below $1, whatever is done in it thrown away, with a real systemd as its first process, and runs $2/trial.sh there, which
# writes to $2. In namespaces of its own: unshare --mount --pid --fork --ipc --uts --net --cgroup sh boot.sh ROOT FOLDER KIND
set -e
root=$1 folder=$2 kind=$3
mount --make-rprivate /
mkdir -p "$folder/boot"
mount -t tmpfs tmpfs "$folder/boot"
cd "$folder/boot"
mkdir upper work system
mount -t overlay overlay -o "lowerdir=$root,upperdir=upper,workdir=work" system
cd system
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/shm dev/pts
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
for device in null zero full random urandom tty; do
    touch "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
for place in run tmp; do mount -t tmpfs tmpfs $place; done
mkdir trial old
mount --bind "$folder" trial
cat >etc/systemd/system/trial.service <<END
[Unit]
After=multi-user.target
SuccessAction=exit
FailureAction=exit
[Service]
Type=oneshot
ExecStart=/bin/sh /trial/trial.sh $kind
StandardOutput=append:/trial/$kind.log
StandardError=append:/trial/$kind.log
TimeoutStartSec=200
END
mkdir -p etc/systemd/system/multi-user.target.wants
ln -s ../trial.service etc/systemd/system/multi-user.target.wants/
pivot_root . old
umount -l old
exec env -i container=trawl PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --show-status=0 --unit=multi-user.target

#!/bin/bash
# Boots a systemd as PID 1 of namespaces of its own, over this machine's root; nothing of it is changed.
#   boot.sh FOLDER: FOLDER/tree is laid over the root, FOLDER/out is /out inside; ends when the target powers off.
set -euo pipefail
folder=$1
mount --make-rprivate /
mkdir -p "$folder/mnt"
mount -t tmpfs tmpfs "$folder/mnt"
cd "$folder/mnt"
mkdir upper work root
mount -t overlay overlay -o "lowerdir=/,upperdir=upper,workdir=work" root
mount -t proc proc root/proc
mount -t sysfs sysfs root/sys
mount -t cgroup2 cgroup2 root/sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs root/dev
for node in null zero full random urandom tty; do
    touch "root/dev/$node"
    mount --bind "/dev/$node" "root/dev/$node"
done
mkdir root/dev/pts root/dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts root/dev/pts
ln -s pts/ptmx root/dev/ptmx
mount -t tmpfs -o mode=755 tmpfs root/run
mkdir -p root/out
mount --bind "$folder/out" root/out
: >root/etc/machine-id
rm -rf root/etc/systemd/system/*.wants root/var/lib/lionstate root/etc/lionstate
cp -a "$folder/tree/." root/
mount -t tmpfs -o mode=1777 tmpfs root/tmp
mkdir -p root/old
cd root
pivot_root . old
umount -l /old
# Without it the folders of credentials are empty.
mount --make-rshared /
exec env -i container=x PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=lionstate-check.target </dev/null

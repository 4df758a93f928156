# Process 1 of a node, in namespaces of its own: $1 is its folder, $2 its name,
# $3 the folder of the images. It starts containerd, kubelet, kube-proxy and what enforces network
# policies; when it is killed, the kernel ends all.
set -eu
folder=$1 name=$2 images=$3
mount --make-rshared /
hostname "$name"
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
for controller in blkio cpu cpuacct cpuset devices freezer memory pids; do
    mkdir "/sys/fs/cgroup/$controller"
    mount -t cgroup -o "$controller" cgroup "/sys/fs/cgroup/$controller"
done
mkdir /sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
for own in /run /var/lib; do # here plugins and runtimes have fixed places
    mount -t tmpfs -o mode=755 tmpfs "$own"
done
mkdir -p "$folder/log" "$folder/kubelet" "$folder/containerd" /run/netns /run/lock
mount --bind "$folder/log" /var/log
# What kubelet would change for the whole machine stays as it is: it sees what it wants.
mkdir /run/sysctl
for wanted in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    file=/run/sysctl/$(basename "${wanted%=*}")
    echo "${wanted#*=}" >"$file"
    mount --bind "$file" "/proc/sys/${wanted%=*}"
done
echo 1 >/proc/sys/net/ipv4/ip_forward

start() { # a program whose output is a file, again when it ends: some need what others make
    log=$1
    shift
    while :; do
        "$@" || true
        sleep 1
    done >>"/var/log/$log.log" 2>&1 &
}
start containerd containerd --config "$folder/containerd.toml"
until [ -S /run/containerd/containerd.sock ]; do sleep 0.2; done
for image in "$images"/*.tar; do
    ctr --namespace k8s.io images import "$image"
done
start kubelet kubelet --config "$folder/kubelet.yaml" --kubeconfig "$folder/kubelet.kubeconfig" \
    --root-dir "$folder/kubelet" --hostname-override "$name" --v 2
start kube-proxy kube-proxy --config "$folder/proxy.yaml" --hostname-override "$name"
start kube-router kube-router --kubeconfig "$folder/kube-router.kubeconfig" \
    --hostname-override "$name" --run-router=false --run-service-proxy=false --run-firewall=true \
    --iptables-sync-period=5s
wait

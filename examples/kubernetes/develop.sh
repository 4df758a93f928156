#!/bin/sh
# Installs PS2Stream for development into the cluster that kubectl reaches: a namespace, secrets that
# are made here, a PostgreSQL without a backup, and the chart with helm/ps2stream/values-dev.yaml.
# Run again, it upgrades the release and keeps secrets and data. What is given goes to helm:
#   sh examples/kubernetes/develop.sh --set image.repository=registry.example.org/ps2stream
set -eu

namespace=${NAMESPACE:-streams}
cd "$(dirname "$0")/../.."
put() { kubectl -n "$namespace" apply -f -; }
put_secret() { kubectl create secret generic "$@" --dry-run=client --output=yaml | put; }
fail() { printf 'develop: %s\n' "$*" >&2; exit 1; }

for program in kubectl helm openssl; do
    command -v "$program" >/dev/null || fail "$program is missing"
done
kubectl get crd rayclusters.ray.io >/dev/null 2>&1 ||
    fail "the cluster has no KubeRay operator: install it first (docs/cluster.md, step 2)"

kubectl create namespace "$namespace" --dry-run=client --output=yaml | kubectl apply -f -
kubectl label --overwrite namespace "$namespace" pod-security.kubernetes.io/enforce=restricted
if ! kubectl -n "$namespace" get secret ps2stream-tls >/dev/null 2>&1; then
    umask 077
    secrets=$(mktemp -d)
    trap 'rm -rf "$secrets"' EXIT
    (
        cd "$secrets"
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
            -subj "/CN=$namespace" -keyout authority.key -out ca.crt
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
            -subj "/CN=ps2stream" -keyout tls.key -out tls.csr
        printf 'subjectAltName=DNS:ps2stream.%s.svc,DNS:localhost' "$namespace" >names
        openssl x509 -req -in tls.csr -CA ca.crt -CAkey authority.key -CAcreateserial -days 365 \
            -extfile names -out tls.crt
        openssl rand -hex 24 | tr -d '\n' >password
        for name in admin test; do
            printf 'ps2s_%s_%s' "$(openssl rand -hex 8)" "$(openssl rand -hex 32)" >"$name"
        done
    )
    put_secret ps2stream-database --from-file="$secrets/password"
    put_secret ps2stream-tokens --from-file="$secrets/admin" --from-file="$secrets/test"
    # The last one: until it is there, the next run makes all of them.
    put_secret ps2stream-tls --type=kubernetes.io/tls --from-file="$secrets/tls.crt" \
        --from-file="$secrets/tls.key" --from-file="$secrets/ca.crt"
fi
sed "${POSTGRES_IMAGE:+s|image: .*|image: $POSTGRES_IMAGE|}" examples/kubernetes/postgres.yaml |
    put
helm upgrade --install ps2stream helm/ps2stream --namespace "$namespace" \
    --values helm/ps2stream/values-dev.yaml --wait --timeout "${TIMEOUT:-15m}" "$@"

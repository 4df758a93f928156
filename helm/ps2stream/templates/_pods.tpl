{{/* The parts that pods have in common. Arguments: top (the chart's root), and those named below. */}}

{{- define "ps2stream.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "ps2stream.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* The labels of a pod. component: the name of the component. */}}
{{- define "ps2stream.podLabels" -}}
{{ include "ps2stream.selector" .top }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* The beginning of a pod's spec. component: as above. */}}
{{- define "ps2stream.pod" -}}
{{- with .top.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
serviceAccountName: {{ include "ps2stream.fullname" .top }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- include "ps2stream.podSecurity" .top | nindent 2 }}
{{- with .top.Values.scheduling.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .top.Values.scheduling.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .top.Values.scheduling.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "ps2stream.podLabels" . | nindent 8 }}
{{- end }}

{{- define "ps2stream.container" -}}
image: {{ include "ps2stream.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- include "ps2stream.containerSecurity" . | nindent 2 }}
{{- end }}

{{/* Writable folders; the rest of the file system is read-only. */}}
{{- define "ps2stream.scratchMounts" -}}
- name: temporary
  mountPath: /tmp
- name: kernels
  mountPath: /var/cache/ps2stream
{{- end }}

{{- define "ps2stream.scratch" -}}
- name: temporary
  emptyDir:
    sizeLimit: {{ .Values.ray.temporary }}
- name: kernels
  emptyDir:
    sizeLimit: 256Mi
{{- end }}

{{/* Ray's object store. */}}
{{- define "ps2stream.sharedMemory" -}}
- name: shared-memory
  emptyDir:
    medium: Memory
    sizeLimit: {{ .Values.ray.sharedMemory }}
{{- end }}

{{/* The environment of each process of Ray, as in ps2stream/cluster/ray_environment.py. */}}
{{- define "ps2stream.rayEnvironment" -}}
- name: RAY_task_events_report_interval_ms
  value: "0"
- name: RAY_DEDUP_LOGS
  value: "1"
- name: RAY_DEDUP_LOGS_SKIP_REGEX
  value: "^Raylet is terminated"
- name: RAY_DEDUP_LOGS_ALLOW_REGEX
  value: "^(?!Raylet is terminated)"
- name: RAY_USAGE_STATS_ENABLED
  value: "0"
- name: RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO
  value: "0"
- name: MALLOC_ARENA_MAX
  value: "4"
- name: RAY_ENABLE_AUTO_CONNECT
  value: "0"
- name: RAY_worker_niceness
  value: "0"
{{- if .Values.ray.redis.address }}
- name: RAY_gcs_rpc_server_reconnect_timeout_s # until the next head is up
  value: "600"
{{- end }}
{{- end }}

{{/* The environment of pods that open the database, without the URL, which the controller passes on. */}}
{{- define "ps2stream.databaseEnvironment" -}}
{{- with .Values.database.passwordSecret }}
{{- if .name }}
- name: PGPASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ .name | quote }}
      key: {{ .key | quote }}
{{- end }}
{{- end }}
{{- if .Values.database.caSecret.name }}
- name: PGSSLROOTCERT
  value: /etc/ps2stream/database/ca.crt
{{- end }}
{{- end }}

{{- define "ps2stream.archiveMounts" -}}
{{- if .Values.archive.claim }}
- name: archive
  mountPath: /var/lib/ps2stream
{{- end }}
{{- end }}

{{- define "ps2stream.archiveVolumes" -}}
{{- with .Values.archive.claim }}
- name: archive
  persistentVolumeClaim:
    claimName: {{ . | quote }}
{{- end }}
{{- end }}

{{- define "ps2stream.databaseMounts" -}}
{{- if .Values.database.caSecret.name }}
- name: database
  mountPath: /etc/ps2stream/database
  readOnly: true
{{- end }}
{{- if .Values.logs.configSecret.name }}
- name: logs
  mountPath: /etc/ps2stream/logs
  readOnly: true
{{- end }}
{{- end }}

{{- define "ps2stream.databaseVolumes" -}}
{{- with .Values.database.caSecret }}
{{- if .name }}
- name: database
  secret:
    secretName: {{ .name | quote }}
    defaultMode: 0440
    items:
      - key: {{ .key | quote }}
        path: ca.crt
{{- end }}
{{- end }}
{{- with .Values.logs.configSecret.name }}
- name: logs
  secret:
    secretName: {{ . | quote }}
    defaultMode: 0440
{{- end }}
{{- end }}

{{/* Certificate and key, for pods that open the port or check that they could. */}}
{{- define "ps2stream.serverMounts" -}}
- name: tls
  mountPath: /etc/ps2stream/tls
  readOnly: true
{{- if .Values.tls.clientCA.name }}
- name: client-ca
  mountPath: /etc/ps2stream/client-ca
  readOnly: true
{{- end }}
{{- end }}

{{- define "ps2stream.serverVolumes" -}}
- name: tls
  secret:
    secretName: {{ include "ps2stream.certificate" . | quote }}
    defaultMode: 0440
{{- with .Values.tls.clientCA }}
{{- if .name }}
- name: client-ca
  secret:
    secretName: {{ .name | quote }}
    defaultMode: 0440
    items:
      - key: {{ .key | quote }}
        path: ca.crt
{{- end }}
{{- end }}
{{- end }}

{{/* The certificate authority, for pods that call the service, and a certificate where one is required. */}}
{{- define "ps2stream.clientMounts" -}}
{{- if .Values.tls.caKey }}
- name: authority
  mountPath: /etc/ps2stream/authority
  readOnly: true
{{- end }}
{{- if .Values.tls.clientSecret }}
- name: client
  mountPath: /etc/ps2stream/client
  readOnly: true
{{- end }}
{{- end }}

{{- define "ps2stream.clientVolumes" -}}
{{- if .Values.tls.caKey }}
- name: authority
  secret:
    secretName: {{ include "ps2stream.certificate" . | quote }}
    defaultMode: 0440
    items:
      - key: {{ .Values.tls.caKey | quote }}
        path: ca.crt
{{- end }}
{{- with .Values.tls.clientSecret }}
- name: client
  secret:
    secretName: {{ . | quote }}
    defaultMode: 0440
{{- end }}
{{- end }}

{{/* The options of a client. */}}
{{- define "ps2stream.clientArguments" -}}
- --server={{ include "ps2stream.target" . }}
- --tls-ca={{ ternary "/etc/ps2stream/authority/ca.crt" "system" (ne .Values.tls.caKey "") }}
{{- if .Values.tls.clientSecret }}
- --tls-cert=/etc/ps2stream/client/tls.crt
- --tls-key=/etc/ps2stream/client/tls.key
{{- end }}
{{- end }}

{{/* The token of a client, as a file. secret: its name and key. */}}
{{- define "ps2stream.tokenVolume" -}}
- name: token
  secret:
    secretName: {{ .name | quote }}
    defaultMode: 0440
    items:
      - key: {{ .key | quote }}
        path: token
{{- end }}

{{/* Compiles the kernels before the pod joins: Numba's code is for one kind of CPU. An image may
bring them in /opt/kernels; those of another CPU or version are compiled all the same. */}}
{{- define "ps2stream.kernels" -}}
- name: kernels
  {{- include "ps2stream.container" .top | nindent 2 }}
  command:
    - sh
    - -ec
    - >-
      if [ -d /opt/kernels ]; then cp -r /opt/kernels/. /var/cache/ps2stream; fi;
      exec python -m ps2stream.cluster.warm "$@"
    - kernels
    {{- with .top.Values.settings.index }}
    - {{ . }}
    {{- end }}
  resources:
    {{- toYaml .resources | nindent 4 }}
  volumeMounts:
    {{- include "ps2stream.scratchMounts" .top | nindent 4 }}
{{- end }}

{{/* A probe of the service; gRPC's own probes do not support TLS. The system's resolver stops at
/etc/hosts, where dispatchers have the service's name for themselves; gRPC's own asks on. */}}
{{- define "ps2stream.health" -}}
exec:
  command:
    - env
    - GRPC_DNS_RESOLVER=native
    - ps2stream
    - health
    {{- include "ps2stream.clientArguments" . | nindent 4 }}
    - --timeout=5
timeoutSeconds: 10
{{- end }}

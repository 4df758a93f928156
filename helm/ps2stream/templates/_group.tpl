{{/* A group of a RayCluster. name: the role; of: its values; store: it opens the database; grpc:
it opens the port; also: a second role of the pod. Groups offer Ray no CPU, so that nothing goes
there but the service's actors, which ask for a unit of ps2stream-ROLE. */}}
{{- define "ps2stream.group" -}}
{{- $head := eq .name "head" -}}
rayStartParams:
  metrics-export-port: {{ .top.Values.ray.metricsPort | quote }}
  object-store-memory: "134217728"
  {{- if $head }}
  include-dashboard: "false"
  dashboard-host: 127.0.0.1
  {{- end }}
resources:
  CPU: "0"
  {{- if not $head }}
  ps2stream-{{ .name }}: "1"
  {{- with .also }}
  ps2stream-{{ . }}: "1"
  {{- end }}
  {{- end }}
template:
  metadata:
    labels:
      {{- include "ps2stream.podLabels" (dict "top" .top "component" .name) | nindent 6 }}
  spec:
    {{- include "ps2stream.pod" (dict "top" .top "component" .name) | nindent 4 }}
    terminationGracePeriodSeconds: 30
    {{- if .grpc }}
    hostAliases: # the probe calls this pod by the name that the certificate is for
      - ip: 127.0.0.1
        hostnames: [{{ include "ps2stream.host" .top }}]
    {{- end }}
    {{- if not $head }}
    initContainers:
      {{- include "ps2stream.kernels" (dict "top" .top "resources" .of.resources) | nindent 6 }}
    {{- end }}
    containers:
      - name: ray-{{ .name }}
        {{- include "ps2stream.container" .top | nindent 8 }}
        env:
          {{- include "ps2stream.rayEnvironment" .top | nindent 10 }}
          {{- if .store }}
          {{- include "ps2stream.databaseEnvironment" .top | nindent 10 }}
          {{- end }}
        ports:
          - name: metrics
            containerPort: {{ int64 .top.Values.ray.metricsPort }}
          {{- if .grpc }}
          - name: grpc
            containerPort: {{ int64 .top.Values.service.port }}
          {{- end }}
          {{- if $head }}
          - name: gcs
            containerPort: 6379
          {{- end }}
        {{- if .grpc }}
        readinessProbe:
          {{- include "ps2stream.health" .top | nindent 10 }}
          periodSeconds: 10
          failureThreshold: 2
        {{- end }}
        resources:
          {{- toYaml .of.resources | nindent 10 }}
        volumeMounts:
          {{- include "ps2stream.scratchMounts" .top | nindent 10 }}
          - name: shared-memory
            mountPath: /dev/shm
          {{- if .store }}
          {{- include "ps2stream.databaseMounts" .top | nindent 10 }}
          {{- end }}
          {{- if .grpc }}
          {{- include "ps2stream.serverMounts" .top | nindent 10 }}
          {{- include "ps2stream.clientMounts" .top | nindent 10 }}
          {{- include "ps2stream.archiveMounts" .top | nindent 10 }}
          {{- end }}
    volumes:
      {{- include "ps2stream.scratch" .top | nindent 6 }}
      {{- include "ps2stream.sharedMemory" .top | nindent 6 }}
      {{- if .store }}
      {{- include "ps2stream.databaseVolumes" .top | nindent 6 }}
      {{- end }}
      {{- if .grpc }}
      {{- include "ps2stream.serverVolumes" .top | nindent 6 }}
      {{- include "ps2stream.clientVolumes" .top | nindent 6 }}
      {{- include "ps2stream.archiveVolumes" .top | nindent 6 }}
      {{- end }}
{{- end }}

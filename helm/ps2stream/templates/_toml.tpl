{{/* JSON's strings and lists of strings are TOML's; its numbers are not, above a million. */}}
{{- define "ps2stream.scalar" -}}
{{- if kindIs "float64" . }}{{ if eq (floor .) . }}{{ int64 . }}{{ else }}{{ . }}{{ end }}{{ else }}{{ toJson . }}{{ end }}
{{- end }}

{{- define "ps2stream.toml" -}}
ray_address = {{ printf "%s-head-svc:6379" (include "ps2stream.fullname" .) | toJson }}
nodes_s = 600 # pods take their time, with an image to pull
host = "0.0.0.0"
port = {{ int64 .Values.service.port }}
dispatcher_ports = "same"
link_ports = {{ toJson .Values.ray.linkPorts }}
{{- with .Values.database.url }}
database_url = {{ toJson . }}
{{- end }}
database_schema = {{ toJson .Values.database.schema }}
{{- with .Values.logs }}
{{- if .url }}
log_url = {{ toJson .url }}
log_config = {{ printf "/etc/ps2stream/logs/%s" .configSecret.key | toJson }}
{{- end }}
{{- end }}
{{- if .Values.archive.claim }}
archive = "/var/lib/ps2stream/archive"
{{- end }}
dispatchers = {{ int64 .Values.dispatchers.replicas }}
workers = {{ int64 .Values.workers.replicas }}
mergers = {{ int64 .Values.mergers.replicas }}
tls_cert = "/etc/ps2stream/tls/tls.crt"
tls_key = "/etc/ps2stream/tls/tls.key"
{{- if .Values.tls.clientCA.name }}
tls_client_ca = "/etc/ps2stream/client-ca/ca.crt"
{{- end }}
{{- range $name, $value := omit .Values.settings "identities" "quotas" }}
{{- if not (kindIs "invalid" $value) }}
{{ $name }} = {{ include "ps2stream.scalar" $value }}
{{- end }}
{{- end }}
{{- range $who, $identity := .Values.settings.identities }}

[identities.{{ toJson $who }}]
{{- range $name, $value := $identity }}
{{ $name }} = {{ include "ps2stream.scalar" $value }}
{{- end }}
{{- end }}
{{- range $tenant, $quota := .Values.settings.quotas }}

[quotas.{{ toJson $tenant }}]
{{- range $name, $value := $quota }}
{{ $name }} = {{ include "ps2stream.scalar" $value }}
{{- end }}
{{- end }}
{{- end }}

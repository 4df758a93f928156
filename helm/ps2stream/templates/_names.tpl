{{/* The name of everything that belongs to a release; a DNS label of at most 40 characters, so that
KubeRay, which takes up to 53, and what is put behind it have room. */}}
{{- define "ps2stream.fullname" -}}
{{- $name := ternary "ps2stream" (printf "ps2stream-%s" .Release.Name) (eq .Release.Name "ps2stream") | replace "." "-" -}}
{{- if gt (len $name) 40 -}}
{{- printf "%s-%s" (trunc 31 $name | trimSuffix "-") (sha256sum $name | trunc 8) -}}
{{- else -}}
{{- $name -}}
{{- end -}}
{{- end }}

{{/* The name under which clients reach the service, for which its certificate must be valid. */}}
{{- define "ps2stream.host" -}}
{{ include "ps2stream.fullname" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{- define "ps2stream.target" -}}
{{ include "ps2stream.host" . }}:{{ .Values.service.port }}
{{- end }}

{{- define "ps2stream.certificate" -}}
{{ .Values.tls.existingSecret | default (printf "%s-tls" (include "ps2stream.fullname" .)) }}
{{- end }}

{{- define "ps2stream.rayToken" -}}
{{ .Values.ray.tokenSecret | default (include "ps2stream.fullname" .) }}
{{- end }}

{{/* Labels that never change for a release, for selectors and pods. KubeRay's own
app.kubernetes.io/name stays, by which it finds the head. */}}
{{- define "ps2stream.selector" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/part-of: ps2stream
{{- end }}

{{- define "ps2stream.labels" -}}
{{ include "ps2stream.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "ps2stream.metadata" -}}
name: {{ include "ps2stream.fullname" .top }}{{ with .suffix }}-{{ . }}{{ end }}
namespace: {{ .top.Release.Namespace | quote }}
labels:
  {{- include "ps2stream.labels" .top | nindent 2 }}
  {{- with .component }}
  app.kubernetes.io/component: {{ . }}
  {{- end }}
{{- end }}

{{- define "ps2stream.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* The image that has Spark and Java too. */}}
{{- define "ps2stream.sparkImage" -}}
{{ .Values.planner.image | default (printf "%s-spark:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion)) }}
{{- end }}

{{/* What the schema cannot say. Every problem is told at once. */}}
{{- define "ps2stream.check" -}}
{{- $bad := list }}
{{- with .Values }}
{{- if not .image.repository }}
{{- $bad = append $bad "image.repository: say where the image is; none is published" }}
{{- end }}
{{- if eq (empty .database.url) (empty .database.urlSecret.name) }}
{{- $bad = append $bad "database.url, database.urlSecret.name: give one of them, PostgreSQL keeps the ledger" }}
{{- end }}
{{- if regexMatch "^[a-z]+://[^/@]*:[^/@]*@" .database.url }}
{{- $bad = append $bad "database.url: has a password; put it into database.passwordSecret" }}
{{- end }}
{{- if regexMatch "[?&](password|passfile)=" .database.url }}
{{- $bad = append $bad "database.url: has a password; put it into database.passwordSecret" }}
{{- end }}
{{- if eq (empty .tls.existingSecret) (empty .tls.certManager.issuer) }}
{{- $bad = append $bad "tls.existingSecret, tls.certManager.issuer: give one of them, the port speaks TLS only" }}
{{- end }}
{{- if ne (empty .tls.clientCA.name) (empty .tls.clientSecret) }}
{{- $bad = append $bad "tls.clientCA.name, tls.clientSecret: come together, for probes, planner and test must show a certificate too" }}
{{- end }}
{{- if and .settings.identities (not .tls.clientCA.name) }}
{{- $bad = append $bad "settings.identities: need tls.clientCA.name, which asks for certificates" }}
{{- end }}
{{- if and (not .tokens) (not .settings.identities) }}
{{- $bad = append $bad "tokens: give one of scope admin at least, in a Secret; there is no default" }}
{{- end }}
{{- if and .planner.enabled (not .planner.tokenSecret.name) (not .settings.identities) }}
{{- $bad = append $bad "planner.tokenSecret.name: the planner needs a token of scope admin; or planner.enabled=false" }}
{{- end }}
{{- if and .test.enabled (not .test.tokenSecret.name) (not .settings.identities) }}
{{- $bad = append $bad "test.tokenSecret.name: the test needs a token of scopes publish and subscribe; or test.enabled=false" }}
{{- end }}
{{- end }}
{{- with $bad }}
{{- fail (printf "\n  %s" (join "\n  " .)) }}
{{- end }}
{{- end }}

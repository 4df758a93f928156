{{/* Checks that the schema cannot express. All problems are reported at once. */}}
{{- define "ps2stream.check" -}}
{{- $bad := list }}
{{- with .Values }}
{{- if not .image.repository }}
{{- $bad = append $bad "image.repository: is missing; name the repository of your image, since none is published" }}
{{- end }}
{{- if eq (empty .database.url) (empty .database.urlSecret.name) }}
{{- $bad = append $bad "database.url, database.urlSecret.name: set exactly one of them; PostgreSQL stores the ledger" }}
{{- end }}
{{- if regexMatch "^[a-z]+://[^/@]*:[^/@]*@" .database.url }}
{{- $bad = append $bad "database.url: contains a password; put it into database.passwordSecret" }}
{{- end }}
{{- if regexMatch "[?&](password|passfile)=" .database.url }}
{{- $bad = append $bad "database.url: contains a password; put it into database.passwordSecret" }}
{{- end }}
{{- if ne (empty .logs.url) (empty .logs.configSecret.name) }}
{{- $bad = append $bad "logs.url, logs.configSecret.name: must be set together; the Secret says how the brokers are reached" }}
{{- end }}
{{- if eq (empty .tls.existingSecret) (empty .tls.certManager.issuer) }}
{{- $bad = append $bad "tls.existingSecret, tls.certManager.issuer: set exactly one of them; the port accepts only TLS" }}
{{- end }}
{{- if ne (empty .tls.clientCA.name) (empty .tls.clientSecret) }}
{{- $bad = append $bad "tls.clientCA.name, tls.clientSecret: must be set together; probes, planner and test must also present a certificate" }}
{{- end }}
{{- if and .settings.identities (not .tls.clientCA.name) }}
{{- $bad = append $bad "settings.identities: require tls.clientCA.name, so that clients present certificates" }}
{{- end }}
{{- if and (not .tokens) (not .settings.identities) }}
{{- $bad = append $bad "tokens: name at least one Secret with a token of scope admin; there is no default" }}
{{- end }}
{{- if and .planner.enabled (not .planner.tokenSecret.name) (not .settings.identities) }}
{{- $bad = append $bad "planner.tokenSecret.name: is missing; the planner needs a token of scope admin, unless planner.enabled is false" }}
{{- end }}
{{- if and .pipeline.enabled (not .pipeline.config) }}
{{- $bad = append $bad "pipeline.config: is missing; the pipeline needs the file that declares it, unless pipeline.enabled is false" }}
{{- end }}
{{- if and .pipeline.enabled (not .pipeline.tokenSecret.name) (not .settings.identities) }}
{{- $bad = append $bad "pipeline.tokenSecret.name: is missing; the pipeline needs a token of scope publish, unless pipeline.enabled is false" }}
{{- end }}
{{- if and .test.enabled (not .test.tokenSecret.name) (not .settings.identities) }}
{{- $bad = append $bad "test.tokenSecret.name: is missing; the test needs a token of the scopes publish and subscribe, unless test.enabled is false" }}
{{- end }}
{{- end }}
{{- with $bad }}
{{- fail (printf "\n  %s" (join "\n  " .)) }}
{{- end }}
{{- end }}

{{/* The name of every object. 52 characters leave room for what a StatefulSet appends to it. */}}
{{- define "ringfence.name" -}}
{{- $name := contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) -}}
{{- $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels that select the pods: never a version, because a selector cannot change. */}}
{{- define "ringfence.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ringfence.labels" -}}
{{ include "ringfence.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "ringfence.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Values reach a template as floating point; in TOML 400000 would become 400000.0, and more become 4e+06.
Writes nothing: turns every whole number of the given map, and of the maps in it, into an integer. */}}
{{- define "ringfence.integers" -}}
{{- $tree := . -}}
{{- range $key, $value := $tree -}}
{{- if kindIs "map" $value -}}
{{- include "ringfence.integers" $value -}}
{{- else if kindIs "slice" $value -}}
{{- range $value }}{{ if kindIs "map" . }}{{ include "ringfence.integers" . }}{{ end }}{{ end -}}
{{- else if kindIs "float64" $value -}}
{{- if eq $value (floor $value) }}{{ $_ := set $tree $key (int64 $value) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Writes nothing: names the files of the API's Secrets in the given [api]. */}}
{{- define "ringfence.apiFiles" -}}
{{- $api := index . 0 -}}{{- $section := index . 1 -}}
{{- if and (contains "tokens" $section.auth) (not $api.existingSecret) -}}
{{- fail "config.api.auth takes tokens: name a Secret with them as api.existingSecret" -}}
{{- end -}}
{{- if $api.existingSecret -}}
{{- if contains "tokens" $section.auth }}{{ $_ := set $section "tokens_file" "/etc/ringfence-api/tokens" }}{{ end -}}
{{- if $api.peerTokenKey }}{{ $_ := set $section "peer_token_file" "/etc/ringfence-api/peer-token" }}{{ end -}}
{{- if $api.sessionKeyKey }}{{ $_ := set $section "session_key_file" "/etc/ringfence-api/session-key" }}{{ end -}}
{{- end -}}
{{- if $api.tls.existingSecret -}}
{{- $_ := set $section "tls_cert_file" "/etc/ringfence-api-tls/tls.crt" -}}
{{- $_ := set $section "tls_key_file" "/etc/ringfence-api-tls/tls.key" -}}
{{- end -}}
{{- end -}}

{{/* ringfence.toml: the values under config, and what the pod decides. */}}
{{- define "ringfence.toml" -}}
{{- $_ := required "config.kafka needs bootstrap.servers: the brokers, as host:port,host:port" (index .Values.config.kafka "bootstrap.servers") -}}
{{- if not .Values.config.routes -}}
{{- fail "config.routes is empty: give at least one route, for example {inputs: [orders]}" -}}
{{- end -}}
{{- $config := deepCopy .Values.config -}}
{{- include "ringfence.integers" $config -}}
{{- $_ := set $config.service "state_dir" "/var/lib/ringfence" -}}
{{- $_ := set $config.api "host" "0.0.0.0" -}}
{{- $_ := set $config.api "port" 8080 -}}
{{- include "ringfence.apiFiles" (list .Values.api $config.api) -}}
{{- /* YAML would read this character, Unicode's next line, as an end of line and change the text. */ -}}
{{- $config | mustToToml | replace "\u0085" "\\u0085" -}}
{{- end -}}

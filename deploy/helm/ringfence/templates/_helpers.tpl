{{/* The name of every object. 52 characters leave room for what a StatefulSet appends to it. */}}
{{- define "ringfence.name" -}}
{{- $name := contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) -}}
{{- .Values.fullnameOverride | default $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "ringfence.serviceAccount" -}}
{{- with .Values.serviceAccount -}}
{{- .name | default (.create | ternary (include "ringfence.name" $) "default") -}}
{{- end -}}
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
{{- with omit .Values.commonLabels "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "app.kubernetes.io/component" "helm.sh/chart" }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of an object that has others beside those of all: of a list, the chart and the others. */}}
{{- define "ringfence.labelsWith" -}}
{{- merge (dict) (index . 1) (include "ringfence.labels" (index . 0) | fromYaml) | toYaml -}}
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
{{- if $api.tls.clientCaKey -}}
{{- $_ := required "api.tls.clientCaKey is a key of api.tls.existingSecret: name that Secret" $api.tls.existingSecret -}}
{{- $_ := set $section "tls_client_ca_file" (printf "/etc/ringfence-api-tls/%s" $api.tls.clientCaKey) -}}
{{- end -}}
{{- end -}}

{{/* Writes nothing: what has no default is said, or all of it is told at once. */}}
{{- define "ringfence.mustSay" -}}
{{- $missing := list -}}
{{- with .Values -}}
{{- if not .image.repository -}}
{{- $missing = append $missing (printf `image.repository is empty: no image is published, so build one and push it to a registry of yours:
    docker build --tag registry.example.com/ringfence:%[1]s . && docker push registry.example.com/ringfence:%[1]s` $.Chart.AppVersion) -}}
{{- end -}}
{{- if not (index .config.kafka "bootstrap.servers") -}}
{{- $missing = append $missing "config.kafka needs bootstrap.servers: the brokers, as host:port,host:port" -}}
{{- end -}}
{{- if not .config.routes -}}
{{- $missing = append $missing "config.routes is empty: give at least one route, for example {inputs: [orders]}" -}}
{{- end -}}
{{- if not .config.api.auth -}}
{{- $missing = append $missing (printf `config.api.auth is empty: say who may use the admin API. Two commands make a token and a Secret with its line:
    ringfence token ada --roles admin --add-to tokens > ada.token
    kubectl --namespace %s create secret generic ringfence-api --from-file=tokens
  then add --set config.api.auth=tokens --set api.existingSecret=ringfence-api. "oidc" asks an issuer;
  "none" lets anybody who reaches port 8080 of a pod change everything.` $.Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- with $missing -}}
{{- fail (printf "these values have no default:\n- %s\n" (join "\n- " .)) -}}
{{- end -}}
{{- end -}}

{{/* ringfence.toml: the values under config, and what the pod decides. */}}
{{- define "ringfence.toml" -}}
{{- include "ringfence.mustSay" . -}}
{{- $config := deepCopy .Values.config -}}
{{- include "ringfence.integers" $config -}}
{{- $_ := set $config.service "state_dir" "/var/lib/ringfence" -}}
{{- $_ := set $config.api "host" "0.0.0.0" -}}
{{- $_ := set $config.api "port" 8080 -}}
{{- $_ := set $config.api "probe_port" 8081 -}}
{{- if or (eq .Values.config.api.auth "none") .Values.config.api.allowed_hosts -}}
{{- $name := include "ringfence.name" . -}}{{- $hosts := $config.api.allowed_hosts | default list -}}
{{- range $end := list "" (printf ".%s" .Release.Namespace) (printf ".%s.svc" .Release.Namespace) (printf ".%s.svc.cluster.local" .Release.Namespace) -}}
{{- $hosts = append $hosts (print $name $end) -}}
{{- end -}}
{{- $_ := set $config.api "allowed_hosts" (uniq $hosts) -}}
{{- end -}}
{{- include "ringfence.apiFiles" (list .Values.api $config.api) -}}
{{- /* YAML would read this character, Unicode's next line, as an end of line and change the text. */ -}}
{{- $config | mustToToml | replace "\u0085" "\\u0085" -}}
{{- end -}}

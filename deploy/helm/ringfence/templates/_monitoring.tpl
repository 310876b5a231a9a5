{{/* How Prometheus asks for /metrics: at the port of the probes, unless a token has to go over TLS. */}}
{{- define "ringfence.scrape" -}}
{{- $root := index . 0 -}}
{{- $tls := $root.Values.api.tls -}}
{{- $secured := and $tls.existingSecret $root.Values.monitoring.token.existingSecret -}}
port: {{ ternary "http" "probes" (not (empty $secured)) }}
path: /metrics
interval: {{ index . 1 | quote }}
{{- if $secured }}
scheme: https
tlsConfig:
  serverName: {{ include "ringfence.name" $root }}.{{ $root.Release.Namespace }}.svc
  ca:
    secret: {name: {{ $tls.existingSecret | quote }}, key: {{ $tls.caKey | default "ca.crt" | quote }}}
{{- end }}
{{- with $root.Values.monitoring.token }}
{{- if .existingSecret }}
authorization:
  type: Bearer
  credentials: {name: {{ .existingSecret | quote }}, key: {{ .key | quote }}}
{{- else if $root.Values.config.api.protect_metrics }}
{{- fail "config.api.protect_metrics has /metrics ask for a token: name the Secret with Prometheus' as monitoring.token.existingSecret" }}
{{- end }}
{{- end }}
{{- end -}}

{{/* What every series of this release bears, as the operator writes it: a monitor's own name, or that of the Service
behind it. Empty where the release has no monitor, and nobody knows. */}}
{{- define "ringfence.series" -}}
{{- $name := include "ringfence.name" . -}}
{{- if .Values.monitoring.podMonitor.enabled -}}
{job: {{ .Release.Namespace }}/{{ $name }}, namespace: {{ .Release.Namespace | quote }}}
{{- else if .Values.monitoring.serviceMonitor.enabled -}}
{job: {{ $name }}-headless, namespace: {{ .Release.Namespace | quote }}}
{{- end -}}
{{- end -}}

{{/* files/rules.yaml with what the values say. Each expression asks for the series of this release alone: two releases
tell of nothing twice, and one that is gone is missed though another lives. */}}
{{- define "ringfence.rules" -}}
{{- $rules := .Files.Get "files/rules.yaml" -}}
{{- with .Values.monitoring.rules -}}
{{- $rules = $rules | replace "vector(3600)" (printf "vector(%d)" (int64 .retryWindowSeconds)) -}}
{{- $rules = $rules | replace "docs/operations.md#" (printf "%s#" .runbooks) -}}
{{- end -}}
{{- $rules = $rules | fromYaml -}}
{{- with $series := include "ringfence.series" . | fromYaml -}}
{{- $ours := printf "job=%q, namespace=%q" .job .namespace -}}
{{- range $group := $rules.groups -}}
{{- range $rule := $group.rules -}}
{{- $all := regexReplaceAll "ringfence[_:][a-z0-9_:]+" $rule.expr (printf "${0}{%s}" $ours) -}}
{{- $_ := set $rule "expr" ($all | replace (printf "%s}{" $ours) (printf "%s, " $ours)) -}}
{{- $_ := set $rule "labels" (merge ($rule.labels | default dict) $series) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $rules | toYaml -}}
{{- end -}}

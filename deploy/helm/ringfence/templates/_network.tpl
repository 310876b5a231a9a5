{{/* The port of a host:port or of a URL. */}}
{{- define "ringfence.portOf" -}}
{{- if contains "://" . -}}
{{- $named := regexFind ":[0-9]+$" (urlParse .).host -}}
{{- trimPrefix ":" $named | default (hasPrefix "https://" . | ternary "443" "80") -}}
{{- else -}}
{{- regexFind ":[0-9]+$" . | trimPrefix ":" | default "9092" -}}
{{- end -}}
{{- end -}}

{{/* To which ports a pod connects, as a JSON list: the brokers', the issuer's, the collector's, the schema registry's, and those of the values. */}}
{{- define "ringfence.portsOut" -}}
{{- $config := .Values.config -}}
{{- $places := splitList "," (index $config.kafka "bootstrap.servers") -}}
{{- if contains "oidc" $config.api.auth -}}
{{- $places = concat $places (list ($config.api.oidc_issuer | default "") ($config.api.oidc_jwks_url | default "")) -}}
{{- end -}}
{{- $places = append $places (($config.tracing | default dict).endpoint | default "") -}}
{{- $places = append $places (($config.schema_registry | default dict).url | default "") -}}
{{- $ports := list -}}
{{- range $place := without $places "" -}}
{{- $ports = append $ports (include "ringfence.portOf" (trim $place) | int) -}}
{{- end -}}
{{- range .Values.networkPolicy.egress.ports }}{{ $ports = append $ports (int .) }}{{ end -}}
{{- $ports | uniq | toJson -}}
{{- end -}}

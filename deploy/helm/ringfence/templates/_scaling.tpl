{{- define "ringfence.replicasMin" -}}
{{- with .Values.autoscaling -}}
{{- if gt (int .minReplicas) (int .maxReplicas) -}}
{{- fail (printf "autoscaling.minReplicas is %d, more than autoscaling.maxReplicas (%d): make it smaller" (int .minReplicas) (int .maxReplicas)) -}}
{{- end -}}
{{- .minReplicas -}}
{{- end -}}
{{- end -}}

{{/* Up at once; down one by one and late, because every change moves partitions and their state. */}}
{{- define "ringfence.scaling" -}}
scaleUp:
  stabilizationWindowSeconds: 60
scaleDown:
  stabilizationWindowSeconds: {{ .Values.autoscaling.scaleDownAfterSeconds }}
  policies:
    - {type: Pods, value: 1, periodSeconds: 120}
{{- end -}}

{{/* The consumer groups, as a JSON list: scope address has a second one. */}}
{{- define "ringfence.groups" -}}
{{- $group := .Values.config.service.group_id -}}
{{- $groups := list $group -}}
{{- range .Values.config.routes -}}
{{- if ne (.scope | default "address") "partition" }}{{ $groups = append $groups (printf "%s.by-address" $group) }}{{ end -}}
{{- end -}}
{{- $groups | uniq | toJson -}}
{{- end -}}

{{/* What KEDA has to know of TLS and SASL, in its own words. */}}
{{- define "ringfence.kedaSecurity" -}}
{{- $protocol := index .Values.config.kafka "security.protocol" | default "plaintext" | upper -}}
{{- if hasSuffix "SSL" $protocol }}
tls: enable
{{- end }}
{{- if hasPrefix "SASL_" $protocol }}
{{- $mechanism := index .Values.config.kafka "sasl.mechanism" | default "none given" | upper }}
{{- $names := dict "PLAIN" "plaintext" "SCRAM-SHA-256" "scram_sha256" "SCRAM-SHA-512" "scram_sha512" }}
sasl: {{ get $names $mechanism | required (printf "autoscaling.by lag: KEDA is not told of sasl.mechanism %s; use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, or scale by cpu" $mechanism) }}
{{- end }}
{{- end -}}

{{/* Where KEDA finds what a TriggerAuthentication refers to; empty where it needs none. */}}
{{- define "ringfence.kedaParameters" -}}
{{- $sasl := .Values.kafka.sasl -}}
{{- $tls := .Values.kafka.tls -}}
{{- $found := list -}}
{{- if $sasl.existingSecret -}}
{{- $found = append $found (dict "parameter" "password" "name" $sasl.existingSecret "key" $sasl.passwordKey) -}}
{{- if $sasl.usernameKey -}}
{{- $found = append $found (dict "parameter" "username" "name" $sasl.existingSecret "key" $sasl.usernameKey) -}}
{{- end -}}
{{- end -}}
{{- if $tls.existingSecret -}}
{{- $found = append $found (dict "parameter" "ca" "name" $tls.existingSecret "key" $tls.caKey) -}}
{{- end -}}
{{- if $tls.clientSecret -}}
{{- $found = append $found (dict "parameter" "cert" "name" $tls.clientSecret "key" $tls.certificateKey) -}}
{{- $found = append $found (dict "parameter" "key" "name" $tls.clientSecret "key" $tls.privateKeyKey) -}}
{{- end -}}
{{- with $found -}}
secretTargetRef:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if include "ringfence.namedUser" . }}
configMapTargetRef:
  - {parameter: username, name: {{ include "ringfence.name" . }}, key: sasl-username}
{{- end }}
{{- end -}}

{{/* The user that config.kafka names, where KEDA has to be told of it. */}}
{{- define "ringfence.namedUser" -}}
{{- if and (eq .Values.autoscaling.by "lag") (not .Values.kafka.sasl.usernameKey) -}}
{{- with index .Values.config.kafka "sasl.username" }}{{ . }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* What a pod of ours has beside its command: shared by the instances and by the pod that helm test runs. */}}

{{/* The restricted standard, for a pod and for each container of ours. */}}
{{- define "ringfence.podSecurity" -}}
{{ toYaml .Values.podSecurityContext }}
{{- end -}}

{{- define "ringfence.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "ringfence.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* What the Kafka client needs and no ConfigMap may hold. */}}
{{- define "ringfence.kafkaEnv" -}}
{{- with .Values.kafka.sasl }}
{{- if .existingSecret }}
{{- if .usernameKey }}
- name: KAFKA_SASL_USERNAME_FILE
  value: /etc/ringfence-sasl/username
{{- end }}
- name: KAFKA_SASL_PASSWORD_FILE
  value: /etc/ringfence-sasl/password
{{- end }}
{{- end }}
{{- if .Values.kafka.tls.existingSecret }}
- name: KAFKA_SSL_CA_LOCATION
  value: /etc/ringfence-tls/ca.crt
{{- end }}
{{- if .Values.kafka.tls.clientSecret }}
- name: KAFKA_SSL_CERTIFICATE_LOCATION
  value: /etc/ringfence-client/tls.crt
- name: KAFKA_SSL_KEY_LOCATION
  value: /etc/ringfence-client/tls.key
{{- end }}
{{- end -}}

{{/* That, and then what the operator adds. */}}
{{- define "ringfence.env" -}}
{{ include "ringfence.kafkaEnv" . }}
{{- with .Values.api.tls }}
{{- if and .existingSecret .caKey }}
- name: SSL_CERT_FILE
  value: /etc/ringfence-api-tls/{{ .caKey }}
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "ringfence.mounts" -}}
- {name: config, mountPath: /etc/ringfence, readOnly: true}
- {name: state, mountPath: /var/lib/ringfence}
- {name: tmp, mountPath: /tmp}
{{- include "ringfence.kafkaMounts" . }}
{{- if .Values.api.existingSecret }}
- {name: api, mountPath: /etc/ringfence-api, readOnly: true}
{{- end }}
{{- if .Values.api.tls.existingSecret }}
- {name: api-tls, mountPath: /etc/ringfence-api-tls, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "ringfence.kafkaMounts" -}}
{{- if .Values.kafka.sasl.existingSecret }}
- {name: sasl, mountPath: /etc/ringfence-sasl, readOnly: true}
{{- end }}
{{- if .Values.kafka.tls.existingSecret }}
- {name: tls, mountPath: /etc/ringfence-tls, readOnly: true}
{{- end }}
{{- if .Values.kafka.tls.clientSecret }}
- {name: client, mountPath: /etc/ringfence-client, readOnly: true}
{{- end }}
{{- end -}}

{{/* All but the state: an instance has a claim for that. */}}
{{- define "ringfence.volumes" -}}
- name: config
  configMap:
    name: {{ include "ringfence.name" . }}
- name: tmp
  emptyDir:
    sizeLimit: 256Mi
{{- include "ringfence.kafkaVolumes" . }}
{{- with .Values.api }}
{{- if .existingSecret }}
# No subPath: a changed Secret reaches the files of a running pod, which reads them again.
- name: api
  secret:
    secretName: {{ .existingSecret | quote }}
    optional: false
    items:
      {{- if contains "tokens" $.Values.config.api.auth }}
      - {key: {{ .tokensKey | quote }}, path: tokens}
      {{- end }}
      {{- with .peerTokenKey }}
      - {key: {{ . | quote }}, path: peer-token}
      {{- end }}
      {{- with .sessionKeyKey }}
      - {key: {{ . | quote }}, path: session-key}
      {{- end }}
{{- end }}
{{- with .tls.existingSecret }}
- name: api-tls
  secret:
    secretName: {{ . | quote }}
{{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "ringfence.kafkaVolumes" -}}
{{- with .Values.kafka.sasl }}
{{- if .existingSecret }}
- name: sasl
  secret:
    secretName: {{ .existingSecret | quote }}
    items:
      - {key: {{ .passwordKey | quote }}, path: password}
      {{- with .usernameKey }}
      - {key: {{ . | quote }}, path: username}
      {{- end }}
{{- end }}
{{- end }}
{{- with .Values.kafka.tls }}
{{- if .existingSecret }}
- name: tls
  secret:
    secretName: {{ .existingSecret | quote }}
    items:
      - {key: {{ .caKey | quote }}, path: ca.crt}
{{- end }}
{{- if .clientSecret }}
- name: client
  secret:
    secretName: {{ .clientSecret | quote }}
    items:
      - {key: {{ .certificateKey | quote }}, path: tls.crt}
      - {key: {{ .privateKeyKey | quote }}, path: tls.key}
{{- end }}
{{- end }}
{{- end -}}

{{/* A probe: of a list, the path, and how often it is asked. Its port speaks plain http and asks for no certificate. */}}
{{- define "ringfence.probe" -}}
httpGet: {path: {{ index . 0 }}, port: probes}
{{ toYaml (index . 1) }}
{{- end -}}

{{/* The scheme that the API speaks. */}}
{{- define "ringfence.scheme" -}}
{{ .Values.api.tls.existingSecret | empty | ternary "http" "https" }}
{{- end -}}

{{/* Writes nothing: outside the cluster, the API asks who asks. */}}
{{- define "ringfence.mustAsk" -}}
{{- if has (index . 0).Values.config.api.auth (list "" "none") -}}
{{- fail (printf "%s would let everybody who reaches it administer Ringfence: set config.api.auth to tokens or oidc" (index . 1)) -}}
{{- end -}}
{{- end -}}

{{/* Where a pod may run; spread over zones and nodes, since two instances of one place are lost together. */}}
{{- define "ringfence.placement" -}}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.topologySpread }}
{{- if or .zone .node }}
topologySpreadConstraints:
  {{- range $key, $otherwise := dict "topology.kubernetes.io/zone" .zone "kubernetes.io/hostname" .node }}
  {{- if $otherwise }}
  - topologyKey: {{ $key }}
    maxSkew: 1
    whenUnsatisfiable: {{ $otherwise }}
    labelSelector:
      matchLabels:
        {{- include "ringfence.selector" $ | nindent 8 }}
  {{- end }}
  {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "ringfence.testNeeds" -}}
resources:
  requests: {cpu: 100m, memory: 128Mi}
  limits: {memory: 256Mi}
securityContext:
  {{- include "ringfence.containerSecurity" . | nindent 2 }}
volumeMounts:
  {{- include "ringfence.mounts" . | nindent 2 }}
{{- end -}}

{{/* A SparkApplication: of the chart, and of a job with its command, its own arguments and what the values say.
Nothing is downloaded: the jars are in the image, and the job compares their sums. */}}
{{- define "ringfence.sparkApplication" -}}
{{- $chart := index . 0 -}}{{- $spark := $chart.Values.spark -}}
{{- if not $spark.image }}{{ fail "spark.image: name the image of the Spark jobs, `docker build --target spark` (docs/backfill.md)" }}{{ end -}}
{{- if not $spark.claim }}{{ fail "spark.claim: name a PersistentVolumeClaim that driver and executors can mount, for tables and state" }}{{ end -}}
{{- $security := dict "allowPrivilegeEscalation" false "capabilities" (dict "drop" (list "ALL")) -}}
{{- with index . 1 -}}
apiVersion: sparkoperator.k8s.io/v1beta2
kind: SparkApplication
metadata:
  name: {{ include "ringfence.name" $chart }}-{{ .command }}
  namespace: {{ $chart.Release.Namespace }}
  labels:
    {{- include "ringfence.labels" $chart | nindent 4 }}
spec:
  type: Python
  pythonVersion: "3"
  mode: cluster
  sparkVersion: 4.0.5
  image: {{ $spark.image | quote }}
  imagePullPolicy: {{ $chart.Values.image.pullPolicy }}
  {{- with $chart.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  mainApplicationFile: local:///opt/ringfence/job.py
  arguments:
    - {{ .command }}
    - --config=/etc/ringfence/ringfence.toml
    - --target=/var/lib/ringfence/{{ .command }}
    {{- range concat .own .arguments }}
    - {{ . | quote }}
    {{- end }}
    {{- with $spark.metricsPort }}
    - "--metrics-port={{ . }}"
    - --metrics-host=0.0.0.0
    {{- end }}
  {{- with $spark.sparkConf }}
  sparkConf:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $spark.hadoopConf }}
  hadoopConf:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $spark.dynamicAllocation }}
  dynamicAllocation:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  restartPolicy:
    {{- toYaml .restart | nindent 4 }}
    onFailureRetryInterval: 30
    onSubmissionFailureRetries: 3
    onSubmissionFailureRetryInterval: 30
  volumes:
    - name: config
      configMap:
        name: {{ include "ringfence.name" $chart }}
    - name: target
      persistentVolumeClaim:
        claimName: {{ $spark.claim | quote }}
    {{- with include "ringfence.kafkaVolumes" $chart | trim }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with $spark.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  driver:
    cores: {{ .driver.cores }}
    memory: {{ .driver.memory | quote }}
    {{- include "ringfence.sparkPlacement" $spark | nindent 4 }}
    {{- with $spark.metricsPort }}
    labels:
      {{- include "ringfence.sparkSelector" $chart | nindent 6 }}
    ports:
      - {name: metrics, containerPort: {{ . }}, protocol: TCP}
    {{- end }}
    serviceAccount: {{ $spark.serviceAccount | quote }}
    podSecurityContext:
      {{- include "ringfence.podSecurity" $chart | nindent 6 }}
    securityContext:
      {{- toYaml $security | nindent 6 }}
    # Only the driver reads the configuration: what executors need of it, it tells them.
    {{- $env := include "ringfence.kafkaEnv" $chart | fromYamlArray }}
    {{- with concat $env ($spark.extraEnv | default list) }}
    env:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    volumeMounts:
      - {name: config, mountPath: /etc/ringfence, readOnly: true}
      - {name: target, mountPath: /var/lib/ringfence}
      {{- with include "ringfence.kafkaMounts" $chart | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- with $spark.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
  executor:
    instances: {{ .executors.instances }}
    cores: {{ .executors.cores }}
    memory: {{ .executors.memory | quote }}
    {{- include "ringfence.sparkPlacement" $spark | nindent 4 }}
    {{- with .overhead }}
    memoryOverhead: {{ . | quote }}
    {{- end }}
    podSecurityContext:
      {{- include "ringfence.podSecurity" $chart | nindent 6 }}
    securityContext:
      {{- toYaml $security | nindent 6 }}
    {{- with $spark.extraEnv }}
    env:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    volumeMounts:
      - {name: target, mountPath: /var/lib/ringfence}
      {{- with $spark.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
{{- end -}}
{{- end -}}

{{/* Where the pods of the jobs may run. */}}
{{- define "ringfence.sparkPlacement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Labels of the drivers, which are none of the service's pods. */}}
{{- define "ringfence.sparkSelector" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: spark-driver
{{- end -}}

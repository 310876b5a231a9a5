{{/* What the service may do on the cluster, as docs/configuration.md has it, for Strimzi; a JSON list.
What an expression or a header names cannot be told ahead: that is for strimzi.user.acls to say. */}}
{{- define "ringfence.acls" -}}
{{- $group := .Values.config.service.group_id -}}
{{- $own := dict "type" "topic" "name" (printf "%s." $group) "patternType" "prefix" -}}
{{- $hop := dict "type" "topic" "name" (printf "%s.by-address" $group) "patternType" "literal" -}}
{{- $acls := list
  (dict "resource" $own "operations" (list "Read" "Write" "Create" "Describe" "DescribeConfigs"))
  (dict "resource" $hop "operations" (list "Delete"))
  (dict "resource" (dict "type" "transactionalId" "name" $group "patternType" "prefix") "operations" (list "Describe" "Write")) -}}
{{- range include "ringfence.groups" . | fromJsonArray -}}
{{- $acls = append $acls (dict "resource" (dict "type" "group" "name" . "patternType" "literal") "operations" (list "Read")) -}}
{{- end -}}
{{- $inputs := list -}}{{- $targets := list -}}{{- $open := list -}}
{{- range .Values.config.routes -}}
{{- $templates := list (.output | default "{topic}.unique") (.dead_letter | default "{topic}.dlq") -}}
{{- $targets = concat $targets (.allowed_outputs | default list) (.reply_topics | default list) -}}
{{- range $input := .inputs -}}
{{- if hasPrefix "^" $input }}{{ $open = append $open $input }}{{ else }}{{ $inputs = append $inputs $input }}{{ end -}}
{{- range $template := $templates -}}
{{- $target := $template | replace "{topic}" $input -}}
{{- if and (not (contains "{" $target)) (not (hasPrefix "^" $input)) -}}
{{- $targets = append $targets $target -}}
{{- else if or (contains "{" $target) (contains "{topic}" $template) -}}
{{- $open = append $open $template -}}
{{- else -}}
{{- $targets = append $targets $template -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $open (not .Values.strimzi.user.acls) -}}
{{- fail (printf "strimzi.user cannot tell which topics %s stands for: name them in strimzi.user.acls" (first $open)) -}}
{{- end -}}
{{- range $inputs | uniq -}}
{{- $acls = append $acls (dict "resource" (dict "type" "topic" "name" . "patternType" "literal") "operations" (list "Read" "Describe" "DescribeConfigs")) -}}
{{- end -}}
{{- $write := list "Write" "Describe" "DescribeConfigs" -}}
{{- if .Values.config.service.create_topics }}{{ $write = append $write "Create" }}{{ end -}}
{{- range $targets | uniq -}}
{{- $acls = append $acls (dict "resource" (dict "type" "topic" "name" . "patternType" "literal") "operations" $write) -}}
{{- end -}}
{{- concat $acls .Values.strimzi.user.acls | toJson -}}
{{- end -}}

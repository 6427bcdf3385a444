{{- define "ratelimitd.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains "ratelimitd" .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-ratelimitd" .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "ratelimitd.selector" -}}
app.kubernetes.io/name: ratelimitd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ratelimitd.labels" -}}
{{ include "ratelimitd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- /* Not empty where counts are in memory. */ -}}
{{- define "ratelimitd.alone" -}}
{{- if eq .Values.settings.store "memory" }}true{{ end -}}
{{- end -}}

{{- /*
The seconds that a pod has to end: drain_delay, 5 s for requests in flight, and 10 s of
room. Templates parse a duration only to move a date by it.
*/ -}}
{{- define "ratelimitd.grace" -}}
{{- $start := toDate "2006-01-02" "2000-01-01" }}
{{- $drained := mustDateModify .Values.settings.drain_delay $start }}
{{- add (sub (unixEpoch $drained) (unixEpoch $start)) 15 -}}
{{- end -}}

{{- /* The variables of a part of the settings: a dict of their prefix and their values. */ -}}
{{- define "ratelimitd.variables" -}}
{{- range $name, $value := .values }}
{{- $variable := printf "%s_%s" $.prefix (upper $name) }}
{{- if kindIs "map" $value }}
{{- include "ratelimitd.variables" (dict "prefix" $variable "values" $value) }}
{{- else if kindIs "slice" $value }}
{{ $variable }}: {{ join "," $value | quote }}
{{- else if and (kindIs "float64" $value) (eq (floor $value) $value) }}
{{- /* Otherwise a large number is 1e+06. */}}
{{ $variable }}: {{ int64 $value | quote }}
{{- else }}
{{ $variable }}: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "ratelimitd.environment" -}}
{{- $settings := deepCopy .Values.settings }}
{{- if include "ratelimitd.alone" . }}
{{- $settings = mergeOverwrite (dict "assignments" (dict "path" "/var/lib/ratelimitd/assignments.db")) (omit $settings "redis") }}
{{- else }}
{{- $defaults := dict "failure" (dict "health" "first_answer") "assignments" (dict "cache_path" "/var/lib/ratelimitd/assignments.cache") }}
{{- $settings = mergeOverwrite $defaults $settings }}
{{- end }}
{{- include "ratelimitd.variables" (dict "prefix" "RATELIMITD" "values" $settings) }}
{{- end -}}

{{- /* A file of the chart, a link to one of the project: a list of the chart's Files and a name. */ -}}
{{- define "ratelimitd.file" -}}
{{- $text := (index . 0).Get (index . 1) }}
{{- if not $text }}
{{- fail (printf "%s is not in this chart: package it by helm package, which follows links" (index . 1)) }}
{{- end }}
{{- $text }}
{{- end -}}

{{- /* Whether the process lives. A kubelet shows no certificate. */ -}}
{{- define "ratelimitd.alive" -}}
{{- if dig "admin" "tls" "client_ca" "" .Values.settings -}}
tcpSocket: {port: admin}
{{- else if dig "admin" "tls" "cert" "" .Values.settings -}}
httpGet: {path: /healthz, port: admin, scheme: HTTPS}
{{- else -}}
httpGet: {path: /healthz, port: admin}
{{- end -}}
{{- end -}}

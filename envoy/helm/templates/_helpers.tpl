{{- /* The release's name if it says what this is. Shorter than 53: a StatefulSet's pods bear it in a label, with a hash. */ -}}
{{- define "prefix-picker.name" -}}
{{- $name := .Release.Name }}
{{- if not (contains .Chart.Name $name) }}{{ $name = printf "%s-%s" $name .Chart.Name }}{{ end }}
{{- $name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "prefix-picker.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "prefix-picker.metadata" -}}
name: {{ include "prefix-picker.name" . }}
namespace: {{ .Release.Namespace | quote }}
labels: {{- include "prefix-picker.labels" . | nindent 2 }}
{{- end }}

{{- define "prefix-picker.labels" -}}
{{ include "prefix-picker.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "prefix-picker.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}
{{- else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end }}
{{- end }}
{{- end }}

{{- define "prefix-picker.secret" -}}
{{ .Values.secret.existing | default (include "prefix-picker.name" .) }}
{{- end }}

{{- /* The namespaces in which discovery reads pods, as a JSON list. */ -}}
{{- define "prefix-picker.namespaces" -}}
{{- $found := list }}
{{- range .Values.config.pools }}
{{- with dig "discovery" "kubernetes" dict . }}{{ $found = append $found (.namespace | default $.Release.Namespace) }}{{ end }}
{{- end }}
{{- $found | uniq | sortAlpha | toJson }}
{{- end }}

{{- /* Fails with all that has to be given and is not, at once. */ -}}
{{- define "prefix-picker.check" -}}
{{- $wrong := list }}
{{- /* A Service's name is stricter than a release's: RFC 1035. */}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" (include "prefix-picker.name" .)) }}
{{- $wrong = append $wrong (printf "the release's name: %s is none that a Service may have; choose another, of small letters, digits and dashes, a letter first" .Release.Name) }}
{{- end }}
{{- if not .Values.image.repository }}
{{- $wrong = append $wrong "image.repository: is empty; give the image's name in a registry that nodes reach" }}
{{- end }}
{{- if not .Values.config.pools }}
{{- $wrong = append $wrong "config.pools: is empty; give at least one, as example.yaml does" }}
{{- end }}
{{- if not (regexMatch "^[1-9][0-9]*(\\.[0-9]+)?[MGTPE]i?$" .Values.storage.size) }}
{{- $wrong = append $wrong (printf "storage.size: %q is no size of a volume; give one like 5Gi" .Values.storage.size) }}
{{- end }}
{{- with .Values.secret }}
{{- if and .existing .values }}
{{- $wrong = append $wrong "secret: has both existing and values; give one of them" }}
{{- else if not (or .existing .values) }}
{{- $wrong = append $wrong "secret: is empty; give the name of a Secret as secret.existing, or secret.values" }}
{{- else if .values }}
{{- /* A null takes a default away. */}}
{{- $config := $.Values.config }}
{{- $files := concat ($config.token_files | default list) ($config.admin_token_files | default list) (list $config.fleet_secret_file) }}
{{- range compact $files }}
{{- if and (eq (dir .) "/etc/prefix-picker/secrets") (not (hasKey $.Values.secret.values (base .))) }}
{{- $wrong = append $wrong (printf "secret.values: lacks %s, whose file config names" (base .)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if $wrong }}{{ fail (printf "values:\n  %s" (join "\n  " $wrong)) }}{{ end }}
{{- end }}

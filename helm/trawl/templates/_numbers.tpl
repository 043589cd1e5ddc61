{{/* Numbers that follow from others. */}}

{{/* A value of the program as text: YAML's large numbers must not become 2e+09. */}}
{{- define "trawl.text" -}}
{{- if kindIs "float64" . -}}{{- int64 . -}}{{- else -}}{{- . -}}{{- end -}}
{{- end -}}

{{/* Bytes of a quantity of memory, such as 4Gi; 0 for an unknown unit. */}}
{{- define "trawl.bytes" -}}
{{- $text := toString . -}}
{{- $units := dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 -}}
{{- $unit := regexFind "[A-Za-z]+$" $text -}}
{{- $number := trimSuffix $unit $text -}}
{{- if not $unit -}}
{{- int64 (float64 $number) -}}
{{- else if hasKey $units $unit -}}
{{- int64 (mulf (float64 $number) (float64 (get $units $unit))) -}}
{{- else -}}
0
{{- end -}}
{{- end -}}

{{/* The grace period of a component: the time before SIGTERM, for draining, and for leaving. */}}
{{- define "trawl.gracePeriodSeconds" -}}
{{- add .preStopSeconds .config.drainTimeoutS .leaveMarginSeconds -}}
{{- end -}}

{{- define "trawl.workerStartSeconds" -}}
{{- if kindIs "invalid" .Values.worker.startSeconds -}}
{{- ternary 300 30 .Values.worker.gpu.enabled -}}
{{- else -}}
{{- .Values.worker.startSeconds -}}
{{- end -}}
{{- end -}}

{{/* Threads of a worker, as passed to the program: its option, else the CPU request, rounded up; empty if neither is set. */}}
{{- define "trawl.workerThreads" -}}
{{- $cpu := dig "requests" "cpu" "" .Values.worker.resources | toString -}}
{{- if .Values.worker.config.threads -}}
{{- int64 .Values.worker.config.threads -}}
{{- else if hasSuffix "m" $cpu -}}
{{- divf (float64 (trimSuffix "m" $cpu)) 1000.0 | ceil | int64 -}}
{{- else if $cpu -}}
{{- float64 $cpu | ceil | int64 -}}
{{- end -}}
{{- end -}}

{{/* Pods that mount the data volume. */}}
{{- define "trawl.dataPods" -}}
{{- $pods := 0 -}}
{{- if .Values.coordinator.enabled -}}{{- $pods = add $pods .Values.coordinator.replicas -}}{{- end -}}
{{- if .Values.worker.enabled -}}
{{- $pods = add $pods (ternary .Values.worker.replicas .Values.worker.autoscaling.maxReplicas (eq .Values.worker.autoscaling.kind "none")) -}}
{{- end -}}
{{- if .Values.import.enabled -}}{{- $pods = add $pods 1 -}}{{- end -}}
{{- $pods -}}
{{- end -}}

{{/* Port of a URL, or the given default: (list url default) */}}
{{- define "trawl.portOf" -}}
{{- $port := regexFind ":[0-9]+$" (urlParse (index . 0)).host | trimPrefix ":" -}}
{{- default (toString (index . 1)) $port -}}
{{- end -}}

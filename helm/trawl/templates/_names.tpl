{{/* Names, labels and images. */}}

{{/* A pod of a Deployment adds 30 characters, and 64 is the longest id that Trawl takes. */}}
{{- define "trawl.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 34 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 34 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 34 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "trawl.clusterName" -}}
{{- default (include "trawl.fullname" .) .Values.clusterName -}}
{{- end -}}

{{/* Of a component: (list . "worker") */}}
{{- define "trawl.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ default $root.Chart.Name $root.Values.nameOverride }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "trawl.labels" -}}
{{- $root := index . 0 -}}
{{ include "trawl.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: trawl
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Of a component that has an image: (list . repository digest) */}}
{{- define "trawl.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- with $root.Values.image.registry -}}{{- $image = printf "%s/%s" (trimSuffix "/" .) $image -}}{{- end -}}
{{- with index . 2 -}}
{{- printf "%s@%s" $image . -}}
{{- else -}}
{{- printf "%s:%s" $image (default $root.Chart.AppVersion $root.Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "trawl.workerRepository" -}}
{{- default (ternary "trawl/worker-cuda" "trawl/worker" .Values.worker.gpu.enabled) .Values.worker.image.repository -}}
{{- end -}}

{{/* The name of a pod's service account: (list . "worker" .Values.worker.serviceAccount) */}}
{{- define "trawl.serviceAccountName" -}}
{{- $account := index . 2 -}}
{{- $own := printf "%s-%s" (include "trawl.fullname" (index . 0)) (index . 1) -}}
{{- if $account.create -}}{{- default $own $account.name -}}{{- else -}}{{- default "default" $account.name -}}{{- end -}}
{{- end -}}

{{/* The Secret with a component's certificate: (list . "worker") */}}
{{- define "trawl.tlsSecret" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- if eq $root.Values.tls.mode "certManager" -}}
{{- printf "%s-%s-tls" (include "trawl.fullname" $root) $component -}}
{{- else -}}
{{- get $root.Values.tls.existingSecrets $component -}}
{{- end -}}
{{- end -}}

{{- define "trawl.coordinatorHost" -}}
{{- printf "%s-coordinator.%s.svc" (include "trawl.fullname" .) .Release.Namespace -}}
{{- end -}}

{{- define "trawl.etcdHost" -}}
{{- printf "%s-etcd.%s.svc" (include "trawl.fullname" .) .Release.Namespace -}}
{{- end -}}

{{- define "trawl.scheme" -}}
{{- ternary "http" "https" (eq .Values.tls.mode "disabled") -}}
{{- end -}}

{{- define "trawl.coordinatorUrl" -}}
{{- printf "%s://%s:%d" (include "trawl.scheme" .) (include "trawl.coordinatorHost" .) (int .Values.coordinator.service.port) -}}
{{- end -}}

{{- define "trawl.etcdEndpoints" -}}
{{- if .Values.etcd.trial.enabled -}}
{{- printf "%s://%s:2379" (include "trawl.scheme" .) (include "trawl.etcdHost" .) -}}
{{- else -}}
{{- join "," .Values.etcd.endpoints -}}
{{- end -}}
{{- end -}}

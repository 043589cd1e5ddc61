{{/* What the pods of coordinators and workers have in common. */}}

{{- define "trawl.podSecurity" -}}
runAsNonRoot: true
{{- with .Values.securityContext }}
{{- if not (kindIs "invalid" .runAsUser) }}
runAsUser: {{ .runAsUser }}
{{- end }}
{{- if not (kindIs "invalid" .runAsGroup) }}
runAsGroup: {{ .runAsGroup }}
{{- end }}
{{- if not (kindIs "invalid" .fsGroup) }}
fsGroup: {{ .fsGroup }}
# Changing the owner of all bars at every start would take longer than the start itself.
fsGroupChangePolicy: OnRootMismatch
{{- end }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "trawl.containerSecurity" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Where datasets are, and where copies of them go. */}}
{{- define "trawl.dataEnvironment" -}}
{{- if eq .Values.data.kind "bucket" -}}
TRAWL_DATA_ROOT: {{ .Values.data.bucket.url | quote }}
TRAWL_DATA_CACHE: /var/lib/trawl/data
TRAWL_DATA_CACHE_BYTES: {{ printf "%d" (int64 .Values.data.bucket.cacheBytes) | quote }}
{{- range $key, $value := .Values.data.bucket.environment }}
{{ $key }}: {{ toString $value | quote }}
{{- end }}
{{- else -}}
TRAWL_DATA_ROOT: /var/lib/trawl/data
{{- end }}
{{- end -}}

{{/* Whether every coordinator sees the directory of results: one alone does so too, together with the one that takes its place. */}}
{{- define "trawl.resultsShared" -}}
{{- and (has .Values.results.kind (list "claim" "existingClaim")) (has "ReadWriteMany" .Values.results.accessModes) -}}
{{- end -}}

{{/* The Secret with the keys of the datasets' bucket. */}}
{{- define "trawl.dataSecret" -}}
{{- if and (eq .Values.data.kind "bucket") .Values.data.bucket.existingSecret }}
- secretRef:
    name: {{ .Values.data.bucket.existingSecret }}
{{- end }}
{{- end -}}

{{/* The volume of datasets, or of copies of them; only imports change the former. (list . readOnly) */}}
{{- define "trawl.dataMount" -}}
{{- $root := index . 0 -}}
- name: data
  mountPath: /var/lib/trawl/data
{{- if and $root.Values.data.subPath (ne $root.Values.data.kind "bucket") }}
  subPath: {{ $root.Values.data.subPath }}
{{- end }}
{{- if and (index . 1) (not (has $root.Values.data.kind (list "none" "bucket"))) }}
  readOnly: true
{{- end }}
{{- end -}}

{{- define "trawl.dataVolume" -}}
- name: data
{{- if eq .Values.data.kind "none" }}
  emptyDir:
    sizeLimit: 1Gi
{{- else if eq .Values.data.kind "bucket" }}
  # Copies of the bucket's files. Those that are being fetched are beyond the cache's bytes.
  emptyDir:
    sizeLimit: {{ printf "%d" (add (int64 .Values.data.bucket.cacheBytes) 4294967296) | quote }}
{{- else }}
  persistentVolumeClaim:
    claimName: {{ ternary (printf "%s-data" (include "trawl.fullname" .)) .Values.data.existingClaim (eq .Values.data.kind "claim") }}
{{- end }}
{{- end -}}

{{/* The certificate of a component: (list . "worker") */}}
{{- define "trawl.tlsMounts" -}}
{{- $root := index . 0 -}}
{{- if ne $root.Values.tls.mode "disabled" }}
- name: tls
  mountPath: /etc/trawl/tls
  readOnly: true
{{- end }}
{{- end -}}

{{- define "trawl.tlsVolumes" -}}
{{- $root := index . 0 -}}
{{- if ne $root.Values.tls.mode "disabled" }}
- name: tls
  secret:
    secretName: {{ include "trawl.tlsSecret" . }}
    defaultMode: 0440
{{- end }}
{{- end -}}

{{- define "trawl.tlsEnvironment" -}}
{{- if eq .Values.tls.mode "disabled" -}}
TRAWL_INSECURE: "true"
{{- else -}}
TRAWL_TLS_CA: /etc/trawl/tls/ca.crt
TRAWL_TLS_CERT: /etc/trawl/tls/tls.crt
TRAWL_TLS_KEY: /etc/trawl/tls/tls.key
{{- end }}
{{- end -}}

{{/* The keys of a ConfigMap that coordinators and workers share: (list . "worker" port) */}}
{{- define "trawl.environment" -}}
{{- $root := index . 0 -}}
{{- $any := ternary "[::]" "0.0.0.0" $root.Values.ipv6 -}}
{{- $server := index $root.Values (index . 1) -}}
TRAWL_CLUSTER_NAME: {{ include "trawl.clusterName" $root | quote }}
{{ include "trawl.dataEnvironment" $root }}
TRAWL_ETCD_ENDPOINTS: {{ include "trawl.etcdEndpoints" $root | quote }}
{{- include "trawl.etcdEnvironment" $root }}
TRAWL_HEALTH: {{ printf "%s:9465" $any | quote }}
TRAWL_LISTEN: {{ printf "%s:%d" $any (index . 2) | quote }}
TRAWL_LOG: {{ $root.Values.log | quote }}
TRAWL_LOG_FORMAT: {{ $root.Values.logFormat }}
{{- if $root.Values.metrics.enabled }}
TRAWL_METRICS: {{ printf "%s:%d" $any (int $root.Values.metrics.port) | quote }}
{{- end }}
{{ include "trawl.tlsEnvironment" $root }}
{{- with $root.Values.tracing.endpoint }}
OTEL_EXPORTER_OTLP_ENDPOINT: {{ . | quote }}
{{- if $root.Values.metrics.enabled }}
# Metrics are scraped; if they were also sent they would be counted twice.
OTEL_METRICS_EXPORTER: none
{{- end }}
{{- end }}
{{- range $key, $value := $server.config }}
{{- if not (kindIs "invalid" $value) }}
TRAWL_{{ $key | snakecase | upper }}: {{ include "trawl.text" $value | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The identity of a pod: the address that it registers with, and its name. (port) */}}
{{- define "trawl.identity" -}}
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
- name: TRAWL_ADVERTISE
  value: $(POD_IP):{{ . }}
- name: TRAWL_ID
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
# Shows in traces where a slow shard ran.
- name: TRAWL_NODE
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
{{- end -}}

{{/* Probes ask on a port of their own, in plain text. What is live depends on nothing but the process; a start waits for etcd,
longer than the program does. (list . server startSeconds) */}}
{{- define "trawl.probes" -}}
{{- $server := index . 1 -}}
{{- $etcd := index $server.config "etcdTimeoutS" | default 10 -}}
{{- $ready := dict "port" 9465 "service" "ready" -}}
{{- $probes := dict
  "startup" (dict "grpc" $ready "periodSeconds" 2 "timeoutSeconds" 2 "failureThreshold" (div (add $etcd (index . 2) 1) 2))
  "liveness" (dict "grpc" (dict "port" 9465 "service" "live") "periodSeconds" 10 "timeoutSeconds" 5 "failureThreshold" 6)
  "readiness" (dict "grpc" $ready "periodSeconds" 5 "timeoutSeconds" 3 "failureThreshold" 2) -}}
{{- range $name := list "startup" "liveness" "readiness" }}
{{ $name }}Probe:
  {{- merge (deepCopy (default (dict) (get $server.probes $name))) (get $probes $name) | toYaml | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "trawl.preStop" -}}
{{- if gt (int .preStopSeconds) 0 }}
lifecycle:
  preStop:
    sleep:
      seconds: {{ .preStopSeconds }}
{{- end }}
{{- end -}}

{{/* Versions of the Secrets and ConfigMaps that users add to a component's environment, as the Kubernetes cluster holds them now: a
process reads its environment once, so a change restarts its pods at the next `helm upgrade`. Empty where nothing can be looked up
(`helm template`). (list . "worker") */}}
{{- define "trawl.environmentVersions" -}}
{{- $root := index . 0 -}}
{{- $server := index $root.Values (index . 1) -}}
{{- $secrets := list -}}
{{- $maps := list -}}
{{- if and (eq (index . 1) "coordinator") (eq $root.Values.results.kind "bucket") -}}{{- $secrets = append $secrets $root.Values.results.bucket.existingSecret -}}{{- end -}}
{{- if eq $root.Values.data.kind "bucket" -}}{{- $secrets = append $secrets $root.Values.data.bucket.existingSecret -}}{{- end -}}
{{- range $server.extraEnvFrom -}}
{{- $secrets = append $secrets (dig "secretRef" "name" "" .) -}}
{{- $maps = append $maps (dig "configMapRef" "name" "" .) -}}
{{- end -}}
{{- range $server.extraEnv -}}
{{- $secrets = append $secrets (dig "valueFrom" "secretKeyRef" "name" "" .) -}}
{{- $maps = append $maps (dig "valueFrom" "configMapKeyRef" "name" "" .) -}}
{{- end -}}
{{- $found := list -}}
{{- range $kind, $names := dict "Secret" (compact $secrets) "ConfigMap" (compact $maps) -}}
{{- range $names | uniq -}}
{{- with lookup "v1" $kind $root.Release.Namespace . -}}{{- $found = append $found (printf "%s/%s@%s" $kind .metadata.name .metadata.resourceVersion) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if $found -}}{{- join "," $found | sha256sum -}}{{- end -}}
{{- end -}}

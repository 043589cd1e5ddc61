{{/* Where pods run, and what users add to them. */}}

{{/* For any pod: (list values priorityClassName nodeSelector tolerations) */}}
{{- define "trawl.scheduling" -}}
{{- with index . 1 }}
priorityClassName: {{ . }}
{{- end }}
{{- with index . 2 }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with index . 3 }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with (index . 0).affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* For coordinators and workers: (list . "worker" nodeSelector tolerations) */}}
{{- define "trawl.placement" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $server := index $root.Values $component -}}
{{- $class := $server.priorityClassName -}}
{{- if and (not $class) $root.Values.priorityClasses.create -}}
{{- $class = include "trawl.priorityClass" (list $root $component) -}}
{{- end -}}
{{- include "trawl.scheduling" (list $server $class (index . 2) (index . 3)) }}
topologySpreadConstraints:
{{- if $server.topologySpreadConstraints }}
  {{- toYaml $server.topologySpreadConstraints | nindent 2 }}
{{- else }}
{{- range $topology := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ $topology }}
    whenUnsatisfiable: {{ $server.spread }}
    labelSelector:
      matchLabels:
        {{- include "trawl.selector" (list $root $component) | nindent 8 }}
    # A rollout spreads its own pods, not those being replaced.
    matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end }}
{{- with $server.extraPodSpec }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Priority classes belong to the whole Kubernetes cluster, so two namespaces must not make the same name; a namespace contains no
dot. (list . "worker") */}}
{{- define "trawl.priorityClass" -}}
{{- $root := index . 0 -}}
{{- printf "%s.%s-%s" $root.Release.Namespace (include "trawl.fullname" $root) (index . 1) -}}
{{- end -}}

{{/* Containers given by users, confined like the chart's own unless they say otherwise: (list . containers) */}}
{{- define "trawl.furtherContainers" -}}
{{- $confined := include "trawl.containerSecurity" (index . 0) | fromYaml -}}
{{- range index . 1 }}
- {{- mergeOverwrite (dict "securityContext" (deepCopy $confined)) . | toYaml | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Certificates for etcd. Whoever can write to etcd bypasses Trawl's roles and tokens, so etcd trusts a CA of its own, which signs
certificates of coordinators and workers only, never one of a user. */}}

{{/* "true" where etcd is reached with certificates of its own CA. */}}
{{- define "trawl.etcdTls" -}}
{{- $https := and .Values.etcd.trial.enabled (ne .Values.tls.mode "disabled") -}}
{{- range .Values.etcd.endpoints -}}{{- if hasPrefix "https://" . -}}{{- $https = true -}}{{- end -}}{{- end -}}
{{- if and $https (not .Values.etcd.tls.trustsTrawlCa) -}}true{{- end -}}
{{- end -}}

{{/* The issuer of these certificates, as YAML; empty where Secrets are given. */}}
{{- define "trawl.etcdIssuer" -}}
{{- if and (eq .Values.tls.mode "certManager") (include "trawl.etcdTls" .) -}}
{{- if .Values.etcd.trial.enabled -}}
{name: {{ include "trawl.fullname" . }}-etcd-ca, kind: Issuer, group: cert-manager.io}
{{- else if .Values.etcd.tls.issuerRef.name -}}
{{- toYaml .Values.etcd.tls.issuerRef -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The Secret with the certificate that a component presents to etcd: (list . "worker") */}}
{{- define "trawl.etcdSecret" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- default (printf "%s-%s-etcd" (include "trawl.fullname" $root) $component) (get $root.Values.etcd.tls (printf "%sSecret" $component)) -}}
{{- end -}}

{{- define "trawl.etcdEnvironment" -}}
{{- if include "trawl.etcdTls" . }}
TRAWL_ETCD_CA: /etc/trawl/etcd/ca.crt
TRAWL_ETCD_CERT: /etc/trawl/etcd/tls.crt
TRAWL_ETCD_KEY: /etc/trawl/etcd/tls.key
{{- end }}
{{- end -}}

{{- define "trawl.etcdMounts" -}}
{{- if include "trawl.etcdTls" . }}
- name: etcd-tls
  mountPath: /etc/trawl/etcd
  readOnly: true
{{- end }}
{{- end -}}

{{/* (list . "worker") */}}
{{- define "trawl.etcdVolumes" -}}
{{- $root := index . 0 -}}
{{- if include "trawl.etcdTls" $root }}
{{- $own := include "trawl.etcdSecret" . }}
- name: etcd-tls
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: {{ $own }}
          items:
            - {key: tls.crt, path: tls.crt}
            - {key: tls.key, path: tls.key}
      - secret:
          name: {{ default $own $root.Values.etcd.tls.caSecret }}
          items:
            - {key: ca.crt, path: ca.crt}
{{- end }}
{{- end -}}

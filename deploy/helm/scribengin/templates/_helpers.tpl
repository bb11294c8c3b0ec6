{{- define "scribengin.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "scribengin.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "scribengin.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "scribengin.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "scribengin.selector" -}}
app.kubernetes.io/name: {{ include "scribengin.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "scribengin.labels" -}}
{{ include "scribengin.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "scribengin.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- define "scribengin.workerNamespace" -}}
{{ .Values.workers.namespace | default .Release.Namespace }}
{{- end }}

{{/* What cannot run ends the installation, with what to set. */}}
{{- define "scribengin.check" -}}
{{- if not .Values.registry.address }}
{{- fail "registry.address is required: the address of your ZooKeeper, which is not part of this chart, such as zk://z1:2181,z2:2181,z3:2181/flows" }}
{{- end }}
{{- if not (or .Values.registry.existingSecret .Values.registry.insecure) }}
{{- fail "registry.existingSecret is required: a Secret with USER:PASSWORD of the registry under the key `login`" }}
{{- end }}
{{- if not .Values.state }}
{{- fail "state is required: where flows keep their state, such as hdfs://NAMENODE:PORT/FOLDER, s3://BUCKET/FOLDER or a folder of sharedVolume" }}
{{- end }}
{{- if and (hasPrefix "/" .Values.state) (not .Values.sharedVolume.existingClaim) }}
{{- fail (printf "state is the folder %s, which all workers must reach: name the volume in sharedVolume.existingClaim" .Values.state) }}
{{- end }}
{{- if and (hasPrefix "/" .Values.state) (not (hasPrefix (printf "%s/" (trimSuffix "/" .Values.sharedVolume.mountPath)) (printf "%s/" (trimSuffix "/" .Values.state)))) }}
{{- fail (printf "state is the folder %s, which is not below sharedVolume.mountPath (%s)" .Values.state .Values.sharedVolume.mountPath) }}
{{- end }}
{{- if not (or .Values.tls.existingSecret .Values.insecureApi) }}
{{- fail "tls.existingSecret is required: a Secret with tls.crt, tls.key and ca.crt; or, to allow an API without TLS, set insecureApi: true" }}
{{- end }}
{{- if and .Values.tls.existingSecret .Values.insecureApi }}
{{- fail "set either tls.existingSecret or insecureApi" }}
{{- end }}
{{- if and .Values.workers.namespace (ne .Values.workers.namespace .Release.Namespace) .Values.sharedVolume.existingClaim }}
{{- fail "sharedVolume.existingClaim is a claim of the release's namespace, and workers.namespace is another one: use a state in HDFS or a bucket" }}
{{- end }}
{{- end }}

{{/* What both kinds of pods are labelled with. */}}
{{- define "scribengin.podLabels" -}}
{{ include "scribengin.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- with .values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The options of both servers for the API. */}}
{{- define "scribengin.serverArgs" -}}
- --name
- $(POD_NAME)
- --home
- /home/scribengin/{{ .component }}
- --listen
- $(POD_NAME).{{ include "scribengin.fullname" .root }}-{{ .component }}s.$(POD_NAMESPACE).svc.{{ .root.Values.clusterDomain }}
- --port
- {{ .values.port | quote }}
{{- if .root.Values.tls.existingSecret }}
- --tls-certificate
- /etc/scribengin/tls/tls.crt
- --tls-key
- /etc/scribengin/tls/tls.key
{{- else }}
- --insecure-api
{{- end }}
{{- end }}

{{- define "scribengin.env" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- /* variables, so that commands in the pod use the same registry */}}
- name: SCRIBENGIN_REGISTRY
  value: {{ .Values.registry.address | quote }}
{{- if .Values.registry.existingSecret }}
- name: SCRIBENGIN_REGISTRY_LOGIN_FILE
  value: /run/scribengin/login
{{- end }}
{{- with .Values.registry.sasl }}
- name: SCRIBENGIN_REGISTRY_SASL
  value: {{ . }}
{{- end }}
{{- if .Values.registry.workerKeySecret }}
- name: SCRIBENGIN_REGISTRY_WORKER_KEY_FILE
  value: /run/scribengin/worker-key
{{- end }}
{{- if .Values.registry.tls.existingSecret }}
- name: SCRIBENGIN_REGISTRY_TLS_CA
  value: /etc/scribengin/registry-tls/ca.crt
{{- if .Values.registry.tls.clientCertificate }}
- name: SCRIBENGIN_REGISTRY_TLS_CERTIFICATE
  value: /etc/scribengin/registry-tls/tls.crt
- name: SCRIBENGIN_REGISTRY_TLS_KEY
  value: /etc/scribengin/registry-tls/tls.key
{{- end }}
{{- end }}
{{- if .Values.registry.insecure }}
- name: SCRIBENGIN_REGISTRY_INSECURE
  value: "1"
{{- end }}
{{- if .Values.tls.existingSecret }}
- name: SCRIBENGIN_CERTIFICATES
  value: /etc/scribengin/tls/ca.crt
{{- end }}
{{- if .Values.token.existingSecret }}
- name: SCRIBENGIN_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ .Values.token.existingSecret }}
      key: {{ .Values.token.key }}
{{- end }}
{{- end }}

{{/* Secrets with a login must be readable by their user only, which a volume of a Secret is not. So they are copied once, into memory. */}}
{{- define "scribengin.initContainers" -}}
{{- $tokens := and (eq .component "master") .root.Values.tokens.existingSecret }}
{{- if or .root.Values.registry.existingSecret .root.Values.registry.workerKeySecret $tokens }}
initContainers:
  - name: secrets
    image: {{ include "scribengin.image" .root }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    command: [sh, -euc]
    args:
      - |
        {{- if .root.Values.registry.existingSecret }}
        install -m 0400 /secrets/registry/{{ .root.Values.registry.loginKey }} /run/scribengin/login
        {{- end }}
        {{- if .root.Values.registry.workerKeySecret }}
        install -m 0400 /secrets/worker-key/{{ .root.Values.registry.workerKeyKey }} /run/scribengin/worker-key
        {{- end }}
        {{- if $tokens }}
        install -m 0600 /secrets/tokens/tokens.json /home/scribengin/master/tokens.json
        {{- end }}
    securityContext: {{- toYaml .root.Values.securityContext | nindent 6 }}
    resources:
      requests: {cpu: 10m, memory: 16Mi}
      limits: {memory: 64Mi}
    volumeMounts:
      - name: run
        mountPath: /run/scribengin
      {{- if .root.Values.registry.existingSecret }}
      - name: registry
        mountPath: /secrets/registry
        readOnly: true
      {{- end }}
      {{- if .root.Values.registry.workerKeySecret }}
      - name: worker-key
        mountPath: /secrets/worker-key
        readOnly: true
      {{- end }}
      {{- if $tokens }}
      - name: tokens
        mountPath: /secrets/tokens
        readOnly: true
      - name: home
        mountPath: /home/scribengin/master
      {{- end }}
{{- end }}
{{- end }}

{{- define "scribengin.volumeMounts" -}}
- name: home
  mountPath: /home/scribengin/{{ .component }}
- name: tmp
  mountPath: /tmp
- name: run
  mountPath: /run/scribengin
  readOnly: true
{{- if .root.Values.registry.tls.existingSecret }}
- name: registry-tls
  mountPath: /etc/scribengin/registry-tls
  readOnly: true
{{- end }}
{{- if .root.Values.tls.existingSecret }}
- name: tls
  mountPath: /etc/scribengin/tls
  readOnly: true
{{- end }}
{{- if .root.Values.sharedVolume.existingClaim }}
- name: shared
  mountPath: {{ .root.Values.sharedVolume.mountPath }}
{{- end }}
{{- with .values.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "scribengin.volumes" -}}
{{- if not .values.persistence.enabled }}
- name: home
  emptyDir: {}
{{- end }}
- name: tmp
  emptyDir: {}
- name: run
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- if .root.Values.registry.existingSecret }}
- name: registry
  secret: {secretName: {{ .root.Values.registry.existingSecret }}, defaultMode: 288}
{{- end }}
{{- if .root.Values.registry.workerKeySecret }}
- name: worker-key
  secret: {secretName: {{ .root.Values.registry.workerKeySecret }}, defaultMode: 288}
{{- end }}
{{- if .root.Values.registry.tls.existingSecret }}
- name: registry-tls
  secret: {secretName: {{ .root.Values.registry.tls.existingSecret }}, defaultMode: 288}
{{- end }}
{{- if .root.Values.tls.existingSecret }}
- name: tls
  secret: {secretName: {{ .root.Values.tls.existingSecret }}, defaultMode: 288}
{{- end }}
{{- if and (eq .component "master") .root.Values.tokens.existingSecret }}
- name: tokens
  secret: {secretName: {{ .root.Values.tokens.existingSecret }}, defaultMode: 288}
{{- end }}
{{- if .root.Values.sharedVolume.existingClaim }}
- name: shared
  persistentVolumeClaim: {claimName: {{ .root.Values.sharedVolume.existingClaim }}}
{{- end }}
{{- with .values.volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What both StatefulSets have outside of the container. */}}
{{- define "scribengin.podSettings" -}}
terminationGracePeriodSeconds: {{ .values.terminationGracePeriodSeconds }}
enableServiceLinks: false
securityContext: {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
  {{- if .values.affinity }}
  {{- toYaml .values.affinity | nindent 2 }}
  {{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "scribengin.selector" . | nindent 14 }}
  {{- end }}
{{- with .values.topologySpreadConstraints }}
topologySpreadConstraints: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "scribengin.claims" -}}
{{- if .values.persistence.enabled }}
volumeClaimTemplates:
  - metadata:
      name: home
      labels: {{- include "scribengin.selector" . | nindent 8 }}
    spec:
      accessModes: [ReadWriteOnce]
      {{- with .values.persistence.storageClass }}
      storageClassName: {{ . }}
      {{- end }}
      resources:
        requests: {storage: {{ .values.persistence.size }}}
{{- end }}
{{- end }}

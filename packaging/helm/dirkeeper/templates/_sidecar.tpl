{{/*
Three templates for the pod of a bookie, for a chart that has this one as a dependency:

  initContainers:
    {{- include "dirkeeper.conf" .Subcharts.dirkeeper | nindent 4 }}
    {{- include "dirkeeper.sidecar" .Subcharts.dirkeeper | nindent 4 }}
  volumes:
    {{- include "dirkeeper.volumes" .Subcharts.dirkeeper | nindent 4 }}
*/}}

{{- define "dirkeeper.fullname" -}}
{{- contains "dirkeeper" .Release.Name | ternary .Release.Name (printf "%s-dirkeeper" .Release.Name) | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "dirkeeper.labels" -}}
app.kubernetes.io/name: dirkeeper
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Makes the bookie's effective file once more, and the agent's with the name of this pod's host. */}}
{{- define "dirkeeper.conf" -}}
- name: dirkeeper-conf
  image: {{ required "dirkeeper.bookie.image: the image that the bookie runs" .Values.bookie.image | quote }}
  command: ["sh", "-ec"]
  args:
    - |
      {{ .Values.bookie.command }}
      cp {{ .Values.bookie.file }} /run/dirkeeper/bookie.conf
      sed "s/@HOSTNAME@/$(hostname -f)/" /etc/dirkeeper/dirkeeper.toml >/run/dirkeeper/dirkeeper.toml
  {{- with .Values.bookie.env }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.bookie.envFrom }}
  envFrom:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsUser: {{ .Values.bookie.uid }}
    runAsGroup: {{ .Values.bookie.gid }}
    allowPrivilegeEscalation: false
    capabilities: {drop: [ALL]}
    seccompProfile: {type: RuntimeDefault}
  volumeMounts:
    - {name: dirkeeper-config, mountPath: /etc/dirkeeper, readOnly: true}
    - {name: dirkeeper-run, mountPath: /run/dirkeeper}
{{- end }}

{{- define "dirkeeper.sidecar" -}}
- name: dirkeeper
  image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  {{- if .Values.nativeSidecar }}
  restartPolicy: Always
  {{- end }}
  args:
    - run
    - --config=/run/dirkeeper/dirkeeper.toml
    - --listen=0.0.0.0:{{ .Values.port }}
    - --state-dir=/var/lib/dirkeeper
  ports:
    - name: dirkeeper
      containerPort: {{ .Values.port }}
  # Says that the loop moves, and nothing about disks: a dead disk is no reason to end who reports it. There is no readiness
  # probe: it would count as the bookie's.
  livenessProbe:
    httpGet: {path: /livez, port: dirkeeper{{ with .Values.scheme }}, scheme: {{ . }}{{ end }}}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
  securityContext:
    {{- if .Values.fanFsError }}
    runAsUser: 0
    capabilities: {drop: [ALL], add: [SYS_ADMIN, DAC_OVERRIDE]}
    {{- else }}
    runAsUser: {{ .Values.bookie.uid }}
    runAsGroup: {{ .Values.bookie.gid }}
    allowPrivilegeEscalation: false
    capabilities: {drop: [ALL]}
    {{- end }}
    readOnlyRootFilesystem: true
    seccompProfile: {type: RuntimeDefault}
  {{- with .Values.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  volumeMounts:
    - {name: dirkeeper-run, mountPath: /run/dirkeeper, readOnly: true}
    - {name: dirkeeper-state, mountPath: /var/lib/dirkeeper}
    {{- range required "dirkeeper.volumeMounts: the bookie's volumes, under the paths that they have in its container" .Values.volumeMounts }}
    {{- list (merge (dict) . (dict "mountPropagation" "HostToContainer")) | toYaml | nindent 4 }}
    {{- end }}
{{- end }}

{{- define "dirkeeper.volumes" -}}
- name: dirkeeper-config
  configMap: {name: {{ include "dirkeeper.fullname" . }}}
- name: dirkeeper-run
  emptyDir: {}
- name: dirkeeper-state
  {{- toYaml .Values.stateVolume | nindent 2 }}
{{- end }}

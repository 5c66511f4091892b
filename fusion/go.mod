module github.com/fusionmq/fusionmq/fusion

go 1.26.0

require (
	github.com/grafana/pyroscope-go v1.5.0
	github.com/spf13/cobra v1.10.2
	github.com/spf13/pflag v1.0.9
	go.yaml.in/yaml/v3 v3.0.6
)

require (
	github.com/grafana/pyroscope-go/godeltaprof v0.1.12 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/klauspost/compress v1.20.4 // indirect
)

replace (
	github.com/fusionmq/fusionmq/metaq => ../metaq
	github.com/fusionmq/fusionmq/notify => ../notify
	github.com/fusionmq/fusionmq/store => ../store
)

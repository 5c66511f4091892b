module github.com/fusionmq/fusionmq/metaq

go 1.26.0

require (
	github.com/fusionmq/fusionmq/store v0.0.0
)

replace (
	github.com/fusionmq/fusionmq/store => ../store
)

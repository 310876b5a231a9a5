module ringfence/tools/promtool

go 1.26.0

require github.com/prometheus/prometheus v0.313.5 // indirect

"""What fields of runs are called that other commands ask for too, without loading what runs need."""

from allocator.conversion import Said

ACCELERATOR = Said(
    "--accelerator",
    "Accelerator type of a folder of throughputs and of a cluster in a CSV file; if omitted that of the folder's name, "
    "as in throughputs_A100.",
    "TYPE",
)
SERVERS = Said("--gpus-per-server", "GPUs in one server of each type; 1 if omitted.", "TYPE:COUNT,...")
TIME_UNIT = Said(
    "--time-unit",
    "One unit of the times in a trace of ElasticFlow or Chronus; inferred from the trace if omitted.",
    "SECONDS",
)
THROUGHPUTS = Said(
    "--throughputs",
    "Throughput table (JSON, CSV, Parquet), or a folder of ElasticFlow's; the embedded one if omitted. For jobs that "
    "choose their batch size: goodput (the embedded profiles), profiles (TOML), or a folder of models.",
    "FILE|FOLDER",
)

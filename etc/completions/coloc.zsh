#compdef coloc
# SPDX-License-Identifier: Apache-2.0
# Made by python -m slurm_coloc.cli.texts.completion etc/completions; edit slurm_coloc/cli instead.
local command='' word
local -a found
for word in "${(@)words[2,CURRENT-1]}"; do
    case "$command $word" in
      ' estimate' | \
      ' summarize' | \
      ' calibrate' | \
      ' serve' | \
      ' agent' | \
      ' jobs' | \
      ' eta' | \
      ' gpus' | \
      ' top' | \
      ' history' | \
      ' explain' | \
      ' report' | \
      ' advise' | \
      ' init' | \
      ' doctor' | \
      ' replay' | \
      ' limits' | \
      ' leave' | \
      ' simulate' | \
      ' config' | \
      'config check' | \
      'config show' | \
      ' mig' | \
      'mig plan' | \
      'mig gres' | \
      ' lab' | \
      'lab up' | \
      'lab down' | \
      'lab status')
        command=${command:+$command }$word
        ;;
    esac
done
  case $command in
    '') found=(estimate summarize calibrate serve agent jobs eta gpus top history explain report advise init doctor replay limits leave simulate config mig lab) ;;
    'estimate') found=(--batch-size --seq-len --input --optimizer --precision --gpu --gpus --visible-mib --world-size --zero-stage --training --alloc-conf --level --estimator --jsonl --fit --batch-sizes --json) ;;
    'summarize') found=(--batch-size --input --seq-len --optimizer --precision --output --real --json --timeout) ;;
    'calibrate') found=(--gpu --device --python --out --dry-run --json) ;;
    'serve') found=(--config) ;;
    'agent') found=(--node --config) ;;
    'jobs') found=(--all --user --jobs --limit --watch --json) ;;
    'eta') found=(--watch --json) ;;
    'gpus') found=(--watch --json) ;;
    'top') found=(--delay --mine --once --json) ;;
    'history') found=(--since --jobs --limit --watch --json) ;;
    'explain') found=(--code --json) ;;
    'report') found=(--days --cluster --since --html --compare --output --json) ;;
    'advise') found=(--since --json) ;;
    'init') found=(--config --share --apply --edit --role --dry-run --json) ;;
    'doctor') found=(--config --rollout --slurm-conf --json) ;;
    'replay') found=(--json) ;;
    'limits') found=(--apply --dry-run --undo --yes --json) ;;
    'leave') found=(--config --yes --dry-run --edit --program --wait --json) ;;
    'simulate') found=(--trace --sacct --observed --days --philly --helios --partition --history --gpus --pool --policy --compare --search --estimator --method --interference --power --runs --seed --plan --no-plan --jobs-per-gpu --share-with --budget --max-slowdown --idle-first --no-idle-first --margin-mib --free-mib --smact-at-most --queue --logs --fence --no-fence --assume-smact --assume-memory --joining --scenario --set --plot --markdown --json) ;;
    'config') found=(check show) ;;
    'config check') found=(--json) ;;
    'config show') found=(--reference --sample --json) ;;
    'mig') found=(plan gres) ;;
    'mig plan') found=(--gpu --gpus --cut --limit --json) ;;
    'mig gres') found=(--gres-conf --node --multiple-files --json --dry-run) ;;
    'lab') found=(up down status) ;;
    'lab up') found=(--name --nodes --machine --users --mode --dir --shard-mib --least-loaded --slurm --no-coloc --slurm-conf-extra --dry-run --json) ;;
    'lab down') found=(--name --dry-run --json) ;;
    'lab status') found=(--name --json) ;;
  esac
if [[ $words[CURRENT] == -* || $found[1] != -* ]]; then
  compadd -a found
else
  _files
fi

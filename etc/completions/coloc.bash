# SPDX-License-Identifier: Apache-2.0
# Made by python -m slurm_coloc.cli.texts.completion etc/completions; edit slurm_coloc/cli instead.
_coloc() {
  local current=${COMP_WORDS[COMP_CWORD]} command='' word words=''
  COMPREPLY=()
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
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
    '') words='estimate summarize calibrate serve agent jobs eta gpus top history explain report advise init doctor replay limits leave simulate config mig lab' ;;
    'estimate') words='--batch-size --seq-len --input --optimizer --precision --gpu --gpus --visible-mib --world-size --zero-stage --training --alloc-conf --level --estimator --jsonl --fit --batch-sizes --json' ;;
    'summarize') words='--batch-size --input --seq-len --optimizer --precision --output --real --json --timeout' ;;
    'calibrate') words='--gpu --device --python --out --dry-run --json' ;;
    'serve') words='--config' ;;
    'agent') words='--node --config' ;;
    'jobs') words='--all --user --jobs --limit --watch --json' ;;
    'eta') words='--watch --json' ;;
    'gpus') words='--watch --json' ;;
    'top') words='--delay --mine --once --json' ;;
    'history') words='--since --jobs --limit --watch --json' ;;
    'explain') words='--code --json' ;;
    'report') words='--days --cluster --since --html --compare --output --json' ;;
    'advise') words='--since --json' ;;
    'init') words='--config --share --apply --edit --role --dry-run --json' ;;
    'doctor') words='--config --rollout --slurm-conf --json' ;;
    'replay') words='--json' ;;
    'limits') words='--apply --dry-run --undo --yes --json' ;;
    'leave') words='--config --yes --dry-run --edit --program --wait --json' ;;
    'simulate') words='--trace --sacct --observed --days --philly --helios --partition --history --gpus --pool --policy --compare --search --estimator --method --interference --power --runs --seed --plan --no-plan --jobs-per-gpu --share-with --budget --max-slowdown --idle-first --no-idle-first --margin-mib --free-mib --smact-at-most --queue --logs --fence --no-fence --assume-smact --assume-memory --joining --scenario --set --plot --markdown --json' ;;
    'config') words='check show' ;;
    'config check') words='--json' ;;
    'config show') words='--reference --sample --json' ;;
    'mig') words='plan gres' ;;
    'mig plan') words='--gpu --gpus --cut --limit --json' ;;
    'mig gres') words='--gres-conf --node --multiple-files --json --dry-run' ;;
    'lab') words='up down status' ;;
    'lab up') words='--name --nodes --machine --users --mode --dir --shard-mib --least-loaded --slurm --no-coloc --slurm-conf-extra --dry-run --json' ;;
    'lab down') words='--name --dry-run --json' ;;
    'lab status') words='--name --json' ;;
  esac
  if [[ $current == -* || $words != -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  fi
}
complete -o default -F _coloc coloc

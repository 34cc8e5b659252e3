/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nvidia-cuda-mps-control and its clients say to each other on <pipe directory>/control, a
 * Unix stream socket. One line each way, then:
 *   peer "cmd TEXT"  -> the command's output, end of file
 *   peer "client"    -> (nothing while another user's server has the GPU)
 *                       "ok SERVER_PID LIMITS UUID[,UUID..]"  LIMITS as in the environment, or "-"
 *                       "full" | "closing"
 *                       later "terminate" or "fault"; the client leaves by closing
 */
#ifndef EMU_MPS_H
#define EMU_MPS_H

#define MPS_MAX_CLIENTS 48 /* per server, NVIDIA's MPS documentation, Volta and later */
#define MPS_LINE 4096

/* <$CUDA_MPS_PIPE_DIRECTORY>/NAME into buf; -1 where it is too long. */
int mps_path(char *buf, unsigned long len, const char *name);
/* Connects to the daemon; -1 with errno where there is none. */
int mps_connect(void);

#endif

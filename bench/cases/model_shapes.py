"""Shapes of fp32 products in real models, by the names of their layers.

Each is (M, N, K) of a Linear: so many rows, outputs and inputs. Widths are those of the published
models; the number of rows is that of a usual batch.
"""

LINEARS = {
    # Interatomic potentials: rows are atoms or edges.
    "deepmd_embedding": (8192, 100, 50),
    "deepmd_fitting": (192, 240, 240),
    "schnet_filter": (20000, 128, 50),
    "schnet_atomwise": (1024, 64, 128),
    "painn_update": (1024, 384, 128),
    "nequip_radial": (20000, 64, 8),
    "mace_radial": (20000, 64, 64),
    "allegro_latent": (20000, 128, 128),
    "dimenet_output": (1024, 256, 128),
    "equiformer_edge": (16384, 64, 128),
    # Networks for differential equations, and neural operators.
    "pinn_20": (10000, 20, 20),
    "pinn_50": (10000, 50, 50),
    "pinn_128": (4096, 128, 128),
    "pinn_256": (2048, 256, 256),
    "deeponet_trunk": (10000, 128, 128),
    "fno_lifting": (65536, 64, 3),
    "fno_mlp": (65536, 64, 64),
    "fno_projection": (65536, 128, 64),
    "graphcast_edge": (40000, 512, 512),
    "meshgraphnet_edge": (12000, 128, 384),
    # Fields and graphics.
    "nerf_hidden": (65536, 256, 256),
    "nerf_colour": (65536, 128, 283),
    "siren_hidden": (16384, 256, 256),
    "instant_ngp": (65536, 64, 32),
    # Tables, recommendations, control.
    "dlrm_bottom": (2048, 256, 512),
    "dlrm_top": (2048, 1024, 479),
    "dlrm_score": (2048, 1, 256),
    "tabular_mlp": (512, 192, 100),
    "ft_transformer": (4096, 192, 192),
    "ppo_policy": (64, 64, 17),
    "ppo_hidden": (2048, 64, 64),
    "dqn_head": (32, 512, 3136),
    "sac_critic": (256, 256, 256),
    "dreamer_recurrent": (800, 3072, 1024),
    # Classifiers and their heads.
    "mnist_mlp": (128, 512, 784),
    "mnist_logits": (128, 10, 512),
    "resnet_logits": (256, 1000, 2048),
    "vgg_features": (64, 4096, 25088),
    "vit_mlp": (3152, 3072, 768),
    "efficientnet_squeeze": (256, 48, 1152),
    # Routers and heads in fp32 of models in 16 bits.
    "mixtral_router": (4096, 8, 4096),
    "deepseek_router": (4096, 256, 7168),
    "qwen_router": (2048, 128, 2048),
    "gpt2_head": (64, 50257, 768),
    "reward_head": (512, 1, 4096),
    # Encoders.
    "bert_mlp": (512, 3072, 768),
    "bert_attention": (4096, 768, 768),
    "whisper_attention": (1500, 512, 512),
    "conformer_mlp": (1600, 1024, 256),
    "alphafold_pair": (65536, 128, 128),
    "esm_mlp": (1024, 5120, 1280),
}

# Batches of attention, (B, M, N, K): scores are queries by keys, values are scores by values, whose
# contracted side lies across their rows.
ATTENTIONS = {
    "bert_scores": (96, 512, 512, 64),
    "bert_values": (96, 512, 64, 512),
    "vit_scores": (192, 197, 197, 64),
    "vit_values": (192, 197, 64, 197),
    "decode_scores": (256, 1, 2048, 128),
    "decode_values": (256, 1, 128, 2048),
    "long_scores": (16, 2048, 2048, 128),
    "long_values": (16, 2048, 128, 2048),
    "swin_scores": (4096, 49, 49, 32),
    "graph_scores": (64, 100, 100, 64),
    "fno_modes": (256, 16, 64, 64),
}
